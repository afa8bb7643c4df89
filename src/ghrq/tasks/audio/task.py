"""Audio: a neural codec of speech, and its evaluation on other speakers."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from ghrq.data.audio.crops import Crops
from ghrq.data.audio.speech import DEFAULT, SPLITS, Speech, check_recordings, load_speech
from ghrq.metrics.audio import si_sdr
from ghrq.models.audio_codec import AudioCodec, AudioCodecConfig
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import kmeans_start
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress, make_progress
from ghrq.tasks.audio.adversarial import AdversarialLosses
from ghrq.tasks.audio.evaluation import evaluate_codec, fit_tables
from ghrq.tasks.audio.health import Health, health_values
from ghrq.tasks.audio.losses import CodecLosses, UnquantizedLosses
from ghrq.tasks.audio.recipe import AudioRecipe
from ghrq.tasks.audio.report import TABLES, page
from ghrq.tasks.audio.study import STUDY
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay
from ghrq.training.task import Task

# A seed beside that of the batches.
_START = 1


class Audio(Task):
    """Encoder, quantizer and decoder, together; before that, if asked for, encoder and decoder alone."""

    Recipe = AudioRecipe
    recipe: AudioRecipe
    title = "Speech as codes"
    study = STUDY
    tables = TABLES

    codec: AudioCodec

    def __init__(self, recipe: AudioRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.speech = _load(recipe.data.source)
        recordings = (
            f"{split}/{one.path.name} {one.rate} {one.frames}\n"
            for split, part in zip(SPLITS, self.speech, strict=True)
            for one in part
        )
        self.check_same_data(recordings, f"the recordings in {recipe.data.source or DEFAULT}")

    @classmethod
    def check(cls, recipe: AudioRecipe) -> None:
        """The sizes are those of a codec, the recordings undamaged, and the crops of the start enough for the codes."""
        config = _config(recipe)
        _check_recordings(recipe.data.source)
        if recipe.start:
            _trained(recipe)
            if recipe.optimizer.unquantized:
                raise UserError(
                    f"start = {recipe.start}: the network is trained already, so optimizer.unquantized="
                    f"{recipe.optimizer.unquantized} steps without its quantizer would harm it: set it to 0"
                )
            return  # with its codes
        if recipe.quantizer.start == "random":
            return
        o = recipe.optimizer
        vectors = o.start_crops * round(o.crop * config.sample_rate) // config.hop
        if vectors < config.codes:
            raise UserError(
                f"optimizer.start_crops={o.start_crops} give {vectors} vectors, too few for "
                f"{config.codes} codes: take more, or longer ones (optimizer.crop), or quantizer.start=random"
            )

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        recipe, o = self.recipe, self.recipe.optimizer
        self.codec = AudioCodec(_config(recipe))
        crops = self._crops(self.speech.train)
        fixed = self._crops(self.speech.validation).fixed(o.validation_crops)
        if o.unquantized:
            network = UnquantizedLosses(self.codec, recipe.losses)
            yield Stage(
                "network",
                network,
                RiemannianAdam(self.codec.network.parameters(), lr=o.rate, betas=o.betas),
                batches=lambda step: crops.batches(o.batch, recipe.seed, step),
                steps=o.unquantized,
                steps_per_epoch=o.validate_every,
                begin=self._start_network,
                validate=lambda: _scores(network, *_latents(self.codec, fixed)),
                clip=o.clip,
            )
        losses = CodecLosses(self.codec, recipe.losses)
        groups = [
            {"params": list(self.codec.network.parameters())},
            {"params": list(self.codec.quantizer.parameters()), "lr": o.codebook_rate or o.rate},
        ]
        model: nn.Module = losses
        if recipe.adversary is not None:
            model = AdversarialLosses(losses, recipe.adversary)
            groups.append(model.discriminator_group())
        optimizer = RiemannianAdam(groups, lr=o.rate, betas=o.betas)
        self.codec.quantizer.attach(optimizer)

        def learning() -> float:
            return float(optimizer.param_groups[0]["lr"]) / o.rate

        yield Stage(
            "codec",
            model,
            optimizer,
            batches=lambda step: crops.batches(o.batch, recipe.seed, o.unquantized + step),
            steps=o.steps,
            steps_per_epoch=o.validate_every,
            scheduler=LambdaLR(optimizer, cosine_decay(o.steps)) if o.decay == "cosine" else None,
            begin=self._start,
            validate=_Validation(losses, fixed, learning),
            clip=o.clip,
        )

    def models(self) -> dict[str, nn.Module]:
        """``codec``, with the tables of its entropy coder."""
        settings = self.recipe.evaluation
        fit_tables(self.codec, self.speech.train, 60.0 * settings.coder_minutes, settings.beam, make_progress())
        return {"codec": self.codec}

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show, of speakers of the test split."""
        return evaluate_codec(self.codec, self.speech.test, self.recipe.evaluation, progress)

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Figure 3 and the audio row of table 7."""
        return page(cls.title, study)

    def _crops(self, recordings: Any) -> Crops:
        rate = self.recipe.codec.sample_rate
        return Crops(recordings, rate, round(self.recipe.optimizer.crop * rate))

    @torch.no_grad()
    def _start(self, progress: Progress) -> None:
        """A trained codec; or codes from k-means or at random, and, if nothing was trained yet, a network's start."""
        codec = self.codec
        if self.recipe.start:
            trained = _trained(self.recipe)
            codec.network.load_state_dict(trained.network.state_dict())
            codec.quantizer.load_state_dict(trained.quantizer.state_dict())
            return
        if not self.recipe.optimizer.unquantized:
            self._start_network(progress)
        if self.recipe.quantizer.start == "kmeans":
            kmeans_start(codec.quantizer, codec.latents(self._first_crops()), progress)

    def _start_network(self, progress: Progress) -> None:
        """Principal components."""
        self.codec.network.start(self._first_crops())

    def _first_crops(self) -> Tensor:
        """What training starts from: ``(start_crops, T)``, on the device of the codec."""
        wave = self._crops(self.speech.train).random(self.recipe.optimizer.start_crops, self.recipe.seed, 0, _START)
        return wave.to(self.codec.quantizer.codebooks.device)


class _Validation:
    """Scores of fixed crops at full depth, and whether the quantizer is healthy.

    ``learning()`` is the learning rate, relative to its start.
    """

    def __init__(self, model: CodecLosses, wave: Tensor, learning: Callable[[], float]) -> None:
        self.model, self.wave, self.learning = model, wave, learning
        self.health = Health()

    def __call__(self) -> dict[str, float]:
        quantizer = self.model.codec.quantizer
        wave, z = _latents(self.model.codec, self.wave)
        scores = _scores(self.model, wave, quantizer.decode(quantizer.encode(z)))
        found, scale = quantizer.diagnose(z), quantizer.scale
        for text in self.health.news(found, scores["mel"], self.learning()):
            make_progress().note(f"this run may be collapsing: {text}")
        return scores | health_values(found, 1.0 if scale is None else float(scale()))


def _latents(codec: AudioCodec, wave: Tensor) -> tuple[Tensor, Tensor]:
    """``wave (B, T)`` on the device of the codec, and its vectors."""
    wave = wave.to(codec.quantizer.codebooks.device)
    return wave, codec.latents(wave)


def _scores(model: CodecLosses, wave: Tensor, vectors: Tensor) -> dict[str, float]:
    """How near the sound of ``vectors`` comes to ``wave (B, T)``."""
    heard = model.codec.waveform(vectors)[:, : wave.shape[-1]]
    parts = {name: float(value) for name, value in model.sound(heard, wave).items()}
    return parts | {"si_sdr": float(si_sdr(wave, heard).nanmean())}


def _config(recipe: AudioRecipe) -> AudioCodecConfig:
    """The sizes of the codec."""
    try:
        return AudioCodecConfig(**recipe.codec.model_dump(), quantizer=recipe.quantizer)
    except ValidationError as error:  # of the quantizer: all else was checked with the recipe
        reasons = (each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise UserError("; ".join(f"quantizer.{reason}" for reason in reasons)) from error


def _trained(recipe: AudioRecipe) -> AudioCodec:
    """The codec to go on from."""
    try:
        trained = AudioCodec.from_pretrained(recipe.start)
    except UserError as error:
        other = "train that one first, or go on from the codec that ships: --set start=speech-16k"
        raise UserError(f"start = {recipe.start}: {error}; {other}") from error
    for key, own in recipe.codec:
        if own != getattr(trained.config, key):
            raise UserError(f"start = {recipe.start}: its codec.{key} is {getattr(trained.config, key)}, not {own}")
    q, theirs = recipe.quantizer, trained.config.quantizer
    for key in ("kind", "codebook_size", "num_stages", "curvature", "centre", "update"):
        if getattr(q, key) != getattr(theirs, key):
            raise UserError(
                f"start = {recipe.start}: its quantizer.{key} is {getattr(theirs, key)}, not {getattr(q, key)}"
            )
    return trained


@lru_cache(maxsize=2)
def _load(source: str) -> Speech:
    """The runs of a study share the list of recordings."""
    return load_speech(source)


@lru_cache(maxsize=2)
def _check_recordings(source: str) -> None:
    """The runs of a study need it once."""
    check_recordings(_load(source))
