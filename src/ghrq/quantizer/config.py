"""The quantizer section of a recipe, and the units in which flat space and the ball are comparable."""

import warnings
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from ghrq.quantizer.depth import DepthDropout, Learning
from ghrq.quantizer.kinds import KINDS, Kind, Update, chosen_axes
from ghrq.quantizer.residual import ResidualQuantizer
from ghrq.quantizer.scale import target_radius
from ghrq.system.progress import Progress
from ghrq.system.settings import Decay, Positive, Section, StagedSection, StageSizes, Weight


class DepthDropoutConfig(Section):
    """Depth dropout in a recipe, as :class:`ghrq.quantizer.depth.DepthDropout` explains it."""

    depths: tuple[Positive, ...] | None = None
    full: Annotated[float, Field(ge=0, lt=1)] = 0.0
    learning: Learning = "used"

    def build(self) -> DepthDropout:
        """What a quantizer takes."""
        return DepthDropout(self.depths, self.full, self.learning)


class QuantizerConfig(StagedSection):
    """The quantizer section of a recipe, and of the config of a model. The same keys for every task."""

    kind: Kind = "ghrq"
    codebook_size: StageSizes = 128
    curvature: Weight | Literal["learn"] | None = None
    commitment_weight: Weight = 0.25
    update: Update | None = None
    """None is that of ``kind``; so is None for ``curvature``, ``decay``, ``radius`` and ``scale_control``."""
    decay: Decay | None = None
    """Of the moving averages of usage and midpoints."""
    revive_below: Annotated[float, Field(ge=0, lt=1)] = 0.1
    radius: Annotated[float, Field(gt=0, lt=1)] | None = None
    scale_control: bool | None = None
    centre: bool = False
    """Subtract a moving mean of the encoder's outputs first, and add it last."""
    depth_dropout: DepthDropoutConfig | None = None
    """In training, decode from a random number of stages; None is all of them."""
    weight: Weight = 0.1
    """Of the quantizer's loss in the loss of the model."""
    start: Literal["random", "kmeans"] = "random"
    """``kmeans`` starts the codebooks from encoder outputs."""

    @field_validator("depth_dropout")
    @classmethod
    def _depths_exist(cls, given: DepthDropoutConfig | None, info: ValidationInfo) -> DepthDropoutConfig | None:
        if given is not None and "num_stages" in info.data:
            given.build().check(info.data["num_stages"])
        return given

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.kind in KINDS:  # sections of tasks have kinds that are no quantizers
            axes, curvature = chosen_axes(self.kind, self.curvature, self.update, self.scale_control, self.radius)
            if self.curvature != "learn":
                target_radius(self.radius, self.scale_control, axes.radius, curvature, axes.units)
        return self

    def build(self, dim: int) -> ResidualQuantizer:
        """An untrained quantizer of vectors ``(..., dim)``."""
        return ResidualQuantizer(
            dim,
            self.codebook_size,
            self.num_stages,
            self.kind,
            self.curvature,
            self.commitment_weight,
            codebook_update=self.update,
            decay=self.decay,
            revive_below=self.revive_below,
            radius=self.radius,
            scale_control=self.scale_control,
            centre=self.centre,
            depth_dropout=False if self.depth_dropout is None else self.depth_dropout.build(),
        )


def kmeans_start(quantizer: ResidualQuantizer, z: Tensor, progress: Progress) -> None:
    """Start the codebooks from k-means on encoder outputs ``z (..., dim)``, with a progress bar; notes for warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with progress.patient_bar("k-means", quantizer.num_stages, "stages") as bar:
            quantizer.initialize(z, each_stage=bar.advance)
    for warning in told:
        if warning.category is UserWarning and type(progress) is not Progress:  # which shows nothing
            progress.note(f"note: {warning.message}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def ball_units(quantizer: ResidualQuantizer) -> float:
    """The factor from the quantizer's losses to those of the ball at its origin: 4 in flat space, else 1.

    At the origin of the ball the metric is ``λ² = 4`` times the Euclidean one, so a distance is twice, and a loss of
    squared distances 4 times, what it is in flat space. Studies that compare geometries multiply the quantizer's loss
    by this factor: then all kinds start from the same losses, and the same weight means the same. Under plain SGD they
    divide the learning rate of the codebooks by it, because a Riemannian gradient at the origin is the Euclidean one
    over ``λ²``; without that, Euclidean codes overshoot and diverge. Adam does not see the factor. Distances that are
    not squared, as in a contrastive loss, need nothing: at c = 0 :mod:`ghrq.ball` has the limit ``2‖x - y‖``.
    ``units="encoder"`` measures as flat space does, so its factor is 4 on the ball too.
    """
    return 4.0 if quantizer.curvature == 0.0 or quantizer.units == "encoder" else 1.0
