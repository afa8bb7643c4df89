"""The base class of the sections of recipes and of the configs of models."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of settings: unknown keys are errors, values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")
