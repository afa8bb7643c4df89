"""The sections of an audio recipe."""

from typing import Annotated

from pydantic import Field

from ghrq.models.audio_codec import AudioCodecConfig
from ghrq.system.settings import Count, Positive, Rate, Section
from ghrq.training.recipe import Recipe

Weight = Annotated[float, Field(ge=0)]


class Weights(Section):
    """Of the parts of the loss."""

    mel: Weight = 1.0
    """Of the difference of log mel spectra."""
    spectrum: Weight = 10.0
    """Of the squared difference of complex spectra whose amplitudes are compressed."""
    exponent: Annotated[float, Field(gt=0, le=1)] = 0.3
    """By which power they are."""
    samples: Weight = 10.0
    """Of the absolute difference of samples."""
