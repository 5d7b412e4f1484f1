"""Where the questions come from, how a prompt is made of one, and which pictures are allowed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fastrl_cli.config.base import Count, Section
from fastrl_cli.data.marks import IMAGE_MARK

DEFAULT_INSTRUCTION = (
    "First think about the reasoning process as an internal monologue inside <thinking> </thinking> tags, "
    "then give the final answer in \\boxed{}."
)


class ColumnsConfig(Section):
    """Which column of the data set holds what. Null: found by the preset that fits the columns."""

    question: str | None = None
    answer: str | None = None
    images: str | None = None
    """A column with one picture or a list of pictures."""


class DataConfig(Section):
    """Questions for training and for validation."""

    path: str = Field("builtin", min_length=1)
    """`builtin` (drawn geometry problems), a hub id, a folder of parquet / JSONL / pictures, or a file."""
    name: str | None = None
    """Configuration name of a hub data set."""
    train_split: str = "train"
    validation_split: str = "validation"
    """Used where it exists. The test split is never used in training."""
    columns: ColumnsConfig = ColumnsConfig()
    limit: Count | None = None
    """Only the first rows of the training split."""
    validation_limit: Count | None = 1024
    shuffle: bool = True
    """Draw the questions of each epoch in a seeded random order."""
    instruction: str = DEFAULT_INSTRUCTION
    """Follows the question in the user's turn."""
    system: str | None = None
    max_prompt_tokens: Count = 2048
    overlong_prompt: Literal["drop", "error"] = "drop"
    """A prompt is never truncated: a longer one is left out and counted, or ends the run."""
    min_pixels: Count | None = None
    """Pictures are scaled up to at least this many pixels. Null: as the model's own image processor says."""
    max_pixels: Count | None = None

    @field_validator("instruction", "system")
    @classmethod
    def _holds_no_picture(cls, text: str | None) -> str | None:
        if text is not None and IMAGE_MARK in text:
            raise ValueError(f"must not hold {IMAGE_MARK}, which stands for a picture of the question")
        return text


class BuiltinProblemsConfig(Section):
    """The drawn problems: how many, and how large a picture."""

    train_size: Count = 128
    validation_size: Count = 1024
    picture_size: int = Field(84, ge=56, le=4480, multiple_of=28)
    """Pixels a side."""
