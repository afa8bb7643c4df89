"""The audio task against discriminators: which gradient goes where, and a run that is killed and resumed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_audio import write_voices

from ghrq.models import AudioCodec
from ghrq.models.audio_codec import AudioCodecConfig
from ghrq.system.errors import StoppedError, UserError
from ghrq.tasks.audio import Audio
from ghrq.tasks.audio.adversarial import AdversarialLosses
from ghrq.tasks.audio.losses import CodecLosses, MultiScaleLoss
from ghrq.tasks.audio.recipe import AudioRecipe
from ghrq.training import loop
from ghrq.training.recipe import load_recipe
from ghrq.training.train import train

SMALL = [
    "codec.sample_rate=16000", "codec.dim=8", "codec.seanet.strides=[4, 10]", "codec.seanet.filters=4",
    "codec.seanet.memory=50", "quantizer.codebook_size=16", "quantizer.num_stages=3",
    "quantizer.depth_dropout.depths=[1, 3]", "adversary.start=3", "adversary.discriminators.windows=[128]",
    "adversary.discriminators.filters=2", "adversary.discriminators.periods=[2]",
    "adversary.discriminators.period_channels=2", "adversary.discriminators.scales=1",
    "adversary.discriminators.scale_channels=2", "optimizer.unquantized=2", "optimizer.steps=8", "optimizer.batch=2",
    "optimizer.crop=0.25", "optimizer.start_crops=24", "optimizer.validate_every=4", "optimizer.validation_crops=2",
    "evaluation.files=2", "evaluation.seconds=1", "evaluation.beam=1", "training.trackers=[]", "training.log_every=1",
]  # fmt: skip


def small(source: Path, *settings: str) -> AudioRecipe:
    recipe = load_recipe("audio/paper", [*SMALL, f"data.source={source}", *settings])
    assert isinstance(recipe, AudioRecipe)
    return recipe


def losses(recipe: AudioRecipe) -> AdversarialLosses:
    torch.manual_seed(0)
    assert recipe.adversary is not None
    codec = AudioCodec(AudioCodecConfig(**recipe.codec.model_dump(), quantizer=recipe.quantizer))
    return AdversarialLosses(CodecLosses(codec, recipe.losses), recipe.adversary)


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, Any]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def test_each_side_learns_from_its_own_loss(tmp_path: Path) -> None:
    model = losses(small(tmp_path, "adversary.start=0"))
    parts = model(0.1 * torch.randn(2, 4000))
    of_discriminator = gradients(model, parts["discriminator"])
    of_codec = gradients(model, parts["adversarial"] + parts["features"])
    for name in of_codec:
        learns, other = (of_discriminator, of_codec) if "discriminators" in name else (of_codec, of_discriminator)
        assert other[name] is None, name
        if "codebooks" not in name:  # they learn from the loss of the quantizer only
            assert learns[name] is not None, name


def test_the_quantizer_sees_a_batch_once(tmp_path: Path) -> None:
    model = losses(small(tmp_path, "adversary.start=0"))
    calls = []
    model.codec.codec.quantizer.register_forward_hook(lambda *_: calls.append(1))
    model(0.1 * torch.randn(2, 4000))
    assert calls == [1]


def test_discriminators_begin_after_their_step_and_only_training_counts(tmp_path: Path) -> None:
    model, wave = losses(small(tmp_path, "adversary.start=2")), 0.1 * torch.randn(2, 4000)
    model.eval()
    model(wave)
    model.train()
    assert ["discriminator" in model(wave) for _ in range(4)] == [False, False, True, True]


def test_the_papers_loss_by_its_formula() -> None:
    loss = MultiScaleLoss(24_000)
    wave, heard = 0.1 * torch.randn(2, 6000), 0.1 * torch.randn(2, 6000)
    parts = loss(heard, wave)
    expected = 100.0 * (heard - wave).square().mean()
    for s, of in zip((64, 128, 256, 512, 1024), loss.mels, strict=True):
        assert of.spectrum.fft == max(s, 512)
        assert of.spectrum.hop == s // 4
        a, b = of(heard).double(), of(wave).double()
        rms = (a.add(1e-7).log() - b.add(1e-7).log()).square().mean(1).sqrt()
        expected = expected + (a - b).abs().mean() + (s / 2) ** 0.5 * rms.mean()
    assert parts["reconstruction"].item() == pytest.approx(expected.item(), rel=1e-4)
    nothing = {name: value.item() for name, value in loss(wave, wave).items()}
    assert nothing["mel"] == nothing["samples"] == 0.0


@pytest.mark.slow
def test_stopped_and_resumed_it_comes_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voices = write_voices(tmp_path / "voices")
    whole = train(small(voices), tmp_path / "whole")
    recipe = small(voices, "training.checkpoint_every=2")
    advance, taken = loop._Loop._advance, []

    def dies(self: Any, batch: Any) -> None:
        if len(taken) == 7:  # 2 steps without codes, 5 with; the last of two with discriminators is lost
            raise StoppedError("as if it were killed")
        taken.append(1)
        advance(self, batch)

    monkeypatch.setattr(loop._Loop, "_advance", dies)
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "resumed")
    monkeypatch.undo()
    resumed = train(recipe, tmp_path / "resumed", resume=True)
    assert resumed["by_depth"] == whole["by_depth"]
    states = [
        load_file(tmp_path / run / "checkpoints" / "codec" / "step-00000008" / "model.safetensors")
        for run in ("whole", "resumed")
    ]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any(name.startswith("discriminators.") for name in states[0])

    def logged(run: str) -> list[dict[str, float]]:
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]

    assert logged("resumed") == logged("whole")
    steps = [line for line in logged("whole") if "loss" in line]
    assert ["discriminator" in line for line in steps] == [False] * 5 + [True] * 5
    codec = AudioCodec.from_pretrained(tmp_path / "resumed" / "models" / "codec")
    assert codec.config.architecture == "seanet"


@pytest.mark.slow
def test_the_network_learns_alone_before_codes_begin(tmp_path: Path) -> None:
    train(small(write_voices(tmp_path / "voices"), "optimizer.steps=1"), tmp_path / "run")
    found = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["step"]) for line in found if "loss" in line] == [
        ("network", 1),
        ("network", 2),
        ("codec", 1),
    ]
    before, after = (
        load_file(tmp_path / "run" / "checkpoints" / stage / f"step-{step:08}" / "model.safetensors")
        for stage, step in (("network", 2), ("codec", 1))
    )
    assert float(before["codec.quantizer.scale.weight"]) == 0.0, "no batch was seen"
    assert float(after["codec.codec.quantizer.scale.weight"]) > 0.0


def test_a_trained_codec_needs_no_network_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"optimizer.unquantized=5 steps without its quantizer would harm it"):
        Audio.check(
            load_recipe(
                "audio/speech",
                [f"data.source={write_voices(tmp_path / 'voices')}", "start=speech-16k", "optimizer.unquantized=5"],
            )
        )
