"""The sections of an audio recipe."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ghrq.models.audio_codec import AudioCodecSizes
from ghrq.nets.discriminators import DiscriminatorConfig
from ghrq.quantizer import QuantizerConfig
from ghrq.system.settings import Count, Positive, Rate, Section, Weight
from ghrq.training.recipe import Recipe

Seconds = Annotated[float, Field(gt=0)]


def _absolute(source: str) -> str:
    """So that a run can be resumed from any folder."""
    return str(Path(source).expanduser().absolute()) if source else source


def _absolute_if_there(name: str) -> str:
    """A folder, made absolute; the name of a model that ships with ghrq, or of one of the Hub, stays."""
    return _absolute(name) if Path(name).expanduser().is_dir() else name


class SpeechData(Section):
    """The recordings."""

    source: Annotated[str, AfterValidator(_absolute)] = ""
    """Their folder, see :mod:`ghrq.data.audio.speech`; if empty, ``speech/LibriSpeech`` in ``GHRQ_DATA``."""


class Weights(Section):
    """How decoded sound is compared with the original, and the weights of the parts."""

    form: Literal["compressed", "multi-scale"] = "compressed"
    """``multi-scale`` is the paper's, with weights of its own: see :class:`ghrq.tasks.audio.losses.MultiScaleLoss`."""
    mel: Weight = 1.0
    """Of the difference of log mel spectra."""
    spectrum: Weight = 10.0
    """Of the squared difference of complex spectra whose amplitudes are compressed."""
    exponent: Annotated[float, Field(gt=0, le=1)] = 0.3
    """By which power they are."""
    samples: Weight = 10.0
    """Of the absolute difference of samples."""


class CodecTraining(Section):
    """How the codec is trained."""

    unquantized: Count = 0
    """Steps that the network learns first, without its quantizer. A SEANet needs them: until it knows the mean of all
    sounds its vectors are nearly one constant, in which codes lose their way."""
    steps: Count = 1000
    """With the quantizer."""
    batch: Positive = 8
    """Crops of a step."""
    crop: Seconds = 1.0
    """Seconds of a crop."""
    rate: Rate = 6e-4
    codebook_rate: Rate | None = None
    """Of codebooks that learn by gradient; None is ``rate``."""
    decay: Literal["cosine", "none"] = "cosine"
    """To 0 by a cosine, or none."""
    betas: tuple[float, float] = (0.8, 0.99)
    """Of Adam."""
    clip: Annotated[float, Field(gt=0)] = 5.0
    """Largest norm of the gradient; ``inf`` does not clip."""
    start_crops: Positive = 384
    """Crops for the principal components and k-means that the codec starts from."""
    validate_every: Positive = 100
    """Steps; they are what the log calls an epoch."""
    validation_crops: Positive = 24


class Adversary(Section):
    """Discriminators that the codec learns from. Both sides learn in the same step."""

    start: Count = 500
    """Steps that the codec learns alone."""
    weight: Weight = 1.0
    """Of the judgements in the loss of the codec."""
    feature_weight: Weight = 1.0
    """Of the difference of inner layers."""
    rate: Rate = 3e-4
    betas: tuple[float, float] = (0.5, 0.9)
    discriminators: DiscriminatorConfig = DiscriminatorConfig()


class AudioEvaluation(Section):
    """How the trained codec is judged, on speakers of the test split."""

    files: Positive = 32
    """Recordings, evenly spread over the test split."""
    seconds: Seconds = 8.0
    """Of each recording, from its beginning, at most."""
    beam: Positive = 4
    """Of the search for codes."""
    coder_minutes: Annotated[float, Field(ge=0)] = 60.0
    """Of the training recordings, at most, from which the tables of the entropy coder are made; 0 makes none."""


class AudioRecipe(Recipe):
    """Everything that decides a run on sound."""

    start: Annotated[str, AfterValidator(_absolute_if_there)] = ""
    """A trained codec of the same sizes to go on from: its folder or name. If empty, training begins with principal
    components, and ``quantizer.start`` decides how codes begin."""

    data: SpeechData = SpeechData()
    codec: AudioCodecSizes = AudioCodecSizes()
    quantizer: QuantizerConfig = QuantizerConfig(kind="calibrated", codebook_size=1024, num_stages=12, start="kmeans")
    losses: Weights = Weights()
    adversary: Adversary | None = None
    optimizer: CodecTraining = CodecTraining()
    evaluation: AudioEvaluation = AudioEvaluation()
