"""The audio task from recipe to report."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from small_audio import SMALL, small, write_voices

from ghrq.data.audio.speech import Recording
from ghrq.models import AudioCodec
from ghrq.models.audio_codec import AudioCodecConfig
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.report.study import write_report
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tasks.audio import Audio
from ghrq.tasks.audio.evaluation import depths_of, fit_tables
from ghrq.tasks.audio.health import Health, signs_of_collapse
from ghrq.tasks.audio.losses import SoundLoss
from ghrq.tasks.audio.recipe import Weights
from ghrq.training.study import Outcome
from ghrq.training.train import train
from small_codec import small_codec, speech_like

HEALTHY = Diagnosis(
    residual_error=[1.0, 0.5, 0.3],
    telescoping_error=0.0,
    usage=[1.0] * 3,
    perplexity=[500.0] * 3,
    radius={"median": 0.15, "greatest": 0.5},
    code_radius=[0.1] * 3,
    residual_radius=[0.1] * 3,
    boundary_fraction=0.0,
    offset=0.1,
    codebook_size=1024,
)


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voices(tmp_path_factory.mktemp("voices"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calibrated", "ghrq", "naive", "euclidean"])
def test_every_kind_from_recipe_to_results(kind: str, voices: Path, tmp_path: Path) -> None:
    results = train(small(voices, f"quantizer.kind={kind}"), tmp_path / "run")
    by_depth = results["by_depth"]
    assert by_depth["depth"] == [1, 2, 3]
    assert by_depth["nominal"] == pytest.approx([0.25, 0.5, 0.75])  # 50 frames of 5 bits
    assert all(0.0 < real <= nominal for real, nominal in zip(by_depth["entropy"], by_depth["nominal"], strict=True))
    assert len(by_depth["file"]) == 3
    assert by_depth["file"] == sorted(by_depth["file"])
    assert by_depth["mel"][-1] == results["mel"] < by_depth["mel"][0]
    assert results["quantizer"]["offset"] < 0.3
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in logged if "validation/mel" in line][-1]
    assert last["step"] == 8
    assert last["validation/perplexity_3"] > 1.0
    assert last["validation/signs_of_collapse"] == 0.0
    codec = AudioCodec.from_pretrained(tmp_path / "run" / "models" / "codec")
    assert codec.config.quantizer.kind == kind
    assert codec.tables.frame_weights.any(), "made from the training recordings"


@pytest.mark.slow
def test_the_report_draws_the_figure(voices: Path, tmp_path: Path) -> None:
    outcomes = []
    for seed in (0, 1):
        axes = {"recipe": "cpu", "dim": 16, "kind": "calibrated", "seed": seed}
        folder = tmp_path / f"run{seed}"
        outcomes.append(Outcome(axes, folder, train(small(voices, f"seed={seed}"), folder)))
    write_report(Audio, outcomes, tmp_path / "report")
    written = "".join(path.read_text() for path in (tmp_path / "report").rglob("*.md"))
    assert "Quality at full depth" in written
    assert "Errors on the ball" in written
    assert list((tmp_path / "report").rglob("rate-mel-d16.svg"))


def test_equal_sounds_have_no_loss() -> None:
    loss = SoundLoss(16_000, Weights())
    wave = 0.1 * torch.randn(2, 4000)
    assert all(float(value) == 0.0 for value in loss(wave, wave).values())
    assert float(loss(0.5 * wave, wave)["mel"]) == pytest.approx(0.69, abs=0.02), "the log of 2"


def test_silence_has_a_finite_gradient() -> None:
    wave = torch.zeros(1, 4000, requires_grad=True)
    SoundLoss(16_000, Weights())(wave, torch.zeros(1, 4000))["reconstruction"].backward()
    assert wave.grad is not None
    assert wave.grad.isfinite().all()


def test_depths() -> None:
    assert depths_of(12) == [1, 2, 4, 8, 12]
    assert depths_of(3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"offset": 0.5}, "before stage 1, 0.50"),
        ({"boundary_fraction": 0.4}, "40% of the latents"),
        ({"perplexity": [500.0, 3.0, 400.0]}, "stage 2 has perplexity 3 of 1024 codes: its codes do not follow"),
        ({"perplexity": [500.0, 400.0, 3.0], "residual_error": [1.0, 1e-3, 1e-3]}, "the stages before leave nothing"),
        ({"residual_error": [1.0, 0.5, 0.7]}, "stage 3 adds to the error"),
    ],
)
def test_a_collapse_is_told_with_stage_and_cause(change: dict, told: str) -> None:
    (sign,) = signs_of_collapse(replace(HEALTHY, **change)).values()
    assert told in sign
    health = Health()
    assert health.news(HEALTHY, 1.0, 1.0) == []
    assert health.news(replace(HEALTHY, **change), 1.0, 1.0) == [sign]
    assert health.news(replace(HEALTHY, **change), 1.0, 1.0) == [], "once"


def test_a_mel_distance_that_stands_still_is_told() -> None:
    health = Health()
    told = [health.news(HEALTHY, mel, 0.9) for mel in (1.0, 0.9, 0.8, *[0.8] * 6)]
    assert [bool(news) for news in told] == [False] * 8 + [True]
    ended = Health()
    assert not any(ended.news(HEALTHY, 0.8, 0.1) for _ in range(20)), "the rate has decayed: that is the end"


def test_too_few_crops_to_start_from(voices: Path) -> None:
    with pytest.raises(UserError, match="start_crops=1 give 12 vectors"):
        Audio.check(small(voices, "optimizer.start_crops=1"))
    Audio.check(small(voices, "optimizer.start_crops=1", "quantizer.start=random"))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("quantizer.num_stages=65", "^quantizer.num_stages=65: files of codes hold 64 at most$"),
        ("codec.sample_rate=500", "codec.sample_rate = 500: expected greater than or equal to 1000$"),
    ],
)
def test_sizes_that_no_file_can_hold_are_not_trained(voices: Path, setting: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        Audio.check(small(voices, setting))


def test_a_trained_codec_needs_no_crops_to_start_from(tmp_path: Path, voices: Path) -> None:
    recipe = small(voices)
    codec = AudioCodec(AudioCodecConfig(**recipe.codec.model_dump(), quantizer=recipe.quantizer))
    codec.save_pretrained(tmp_path / "codec")
    Audio.check(small(voices, f"start={tmp_path / 'codec'}", "optimizer.start_crops=1"))


def test_a_damaged_recording_is_found_before_training(tmp_path: Path) -> None:
    voices = write_voices(tmp_path / "voices", files=1)
    soundfile.write(voices / "speaker0" / "0.wav", np.array([0.1, np.nan]), 16_000, "FLOAT")
    with pytest.raises(UserError, match=r"speaker0/0\.wav: sample 1 .* is nan"):
        train(small(voices), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("seconds", "frames"), [(0.0, 0), (0.5, 100), (2.5, 400), (100.0, 600)])
def test_long_recordings_give_tables_too(tmp_path: Path, seconds: float, frames: int) -> None:
    codec, recordings, seen = small_codec(), [], []
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", speech_like(8000, number).numpy(), 8000)
        recordings.append(Recording(tmp_path / f"{number}.wav", 8000, 8000))
    codec.tables.fit = lambda codes: seen.extend(codes)
    fit_tables(codec, recordings, seconds, 1, Progress())
    assert sum(map(len, seen)) == pytest.approx(frames, abs=2), "200 frames a second"
    whole = codec.encode(speech_like(8000, 0), beam=1).numpy()
    assert all((codes == whole[: len(codes)]).mean() > 0.9 for codes in seen[:1])


def test_a_codec_to_go_on_from_that_is_not_there(voices: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(UserError, match=f"start = {missing}: there is no folder .* --set start=speech-16k"):
        Audio.check(small(voices, f"start={missing}"))


@pytest.mark.slow
def test_a_codec_of_ones_own_needs_nothing_but_recordings(voices: Path, ghrq) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    code, out, err = ghrq("codec", "train", voices, "--out", "run", *settings)
    assert code == 0, err
    assert "next: ghrq codec encode IN OUT.ghrq --model run" in out
    code, out, err = ghrq("codec", "encode", voices / "speaker0" / "0.wav", "a.ghrq", "--model", "run")
    assert code == 0, err
    assert "3 of 32" in out


@pytest.mark.slow
def test_codes_begin_as_the_recipe_says(voices: Path, tmp_path: Path) -> None:
    largest = []
    for start in ("random", "kmeans"):
        train(small(voices, f"quantizer.start={start}", "optimizer.steps=0"), tmp_path / start)
        codebooks = AudioCodec.from_pretrained(tmp_path / start / "models/codec").quantizer.codebooks
        largest.append(float(codebooks.detach().norm(dim=-1).max()))
    assert largest[0] == pytest.approx(0.5, abs=0.02), "random codes have radii up to 0.5"
    assert largest[1] != pytest.approx(largest[0], abs=0.02)


@pytest.mark.slow
def test_training_goes_on_from_a_codec(voices: Path, tmp_path: Path) -> None:
    train(small(voices), tmp_path / "first")
    start = f"start={tmp_path / 'first/models/codec'}"
    train(small(voices, start, "optimizer.steps=0"), tmp_path / "second")
    first, second = (AudioCodec.from_pretrained(tmp_path / run / "models/codec") for run in ("first", "second"))
    assert first.fingerprint == second.fingerprint
    with pytest.raises(UserError, match=r"its codec\.dim is 16, not 8"):
        Audio.check(small(voices, start, "codec.dim=8"))
    with pytest.raises(UserError, match=r"its quantizer\.num_stages is 3, not 2"):
        Audio.check(small(voices, start, "quantizer.num_stages=2"))
