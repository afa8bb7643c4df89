"""The base class of the sections of recipes and of the configs of models."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

DEFAULT_STAGES = 4

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""Of a moving average: the share that stays."""

Precision = Literal["fp32", "bf16"]
"""Of the matrix products in training; the ball computes in float32 either way."""


def _sizes(given: Any) -> Any:
    sizes = given if isinstance(given, list) and given else [given]
    if not all(type(size) is int and size >= 2 for size in sizes):
        raise ValueError("a whole number of at least 2, or a list with one for each stage")
    return given


StageSizes = Annotated[int | list[int], BeforeValidator(_sizes)]
"""Number of codes of each stage: one for all, or one for each."""


class Section(BaseModel):
    """A table of settings: unknown keys are errors, values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class StagedSection(Section):
    """A section of stages of codes."""

    codebook_size: StageSizes
    """One for all stages, or one for each, as in ``[64, 256, 1024]``."""
    num_stages: Positive = Field(default=None, validate_default=True)
    """By default as many as there are sizes, or 4."""

    @field_validator("num_stages", mode="before")
    @classmethod
    def _one_for_each(cls, given: Any, info: ValidationInfo) -> Any:
        sizes = info.data.get("codebook_size")
        stages = len(sizes) if isinstance(sizes, list) else None
        if given is None:
            return stages or DEFAULT_STAGES
        if stages not in (None, given):
            told = {"other": "codebook_size", "value": sizes, "right": stages}
            raise PydanticCustomError("stages", "{right}, one for each size of {other}={value}", told)
        return given
