"""The base of every section: unknown keys are refused, values never change after validation, field docs are
docstrings."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Count: TypeAlias = Annotated[int, Field(gt=0, lt=2**31)]
"""A number of things, which tensors can index."""
CountOrZero: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
"""The same, or 0."""


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )
