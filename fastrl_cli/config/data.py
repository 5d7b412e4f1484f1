"""Where the questions come from, how a prompt is made of one, and which pictures are allowed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from fastrl_cli.config.base import Section

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

    path: str = "builtin"
    """`builtin` (drawn geometry problems), a hub id, a folder of parquet / JSONL / pictures, or a file."""
    name: str | None = None
    """Configuration name of a hub data set."""
    train_split: str = "train"
    validation_split: str = "validation"
    """Used where it exists. The test split is never used in training."""
    columns: ColumnsConfig = ColumnsConfig()
    limit: PositiveInt | None = None
    """Only the first rows of the training split."""
    validation_limit: PositiveInt | None = 1024
    shuffle: bool = True
    """Draw the questions of each epoch in a seeded random order."""
    instruction: str = DEFAULT_INSTRUCTION
    """Follows the question in the user's turn."""
    system: str | None = None
    max_prompt_tokens: PositiveInt = 2048
    overlong_prompt: Literal["drop", "error"] = "drop"
    """A prompt is never truncated: a longer one is left out and counted, or ends the run."""
    min_pixels: PositiveInt | None = None
    """Pictures are scaled up to at least this many pixels. Null: as the model's own image processor says."""
    max_pixels: PositiveInt | None = None


class BuiltinProblemsConfig(Section):
    """The drawn problems: how many, and how large a picture."""

    train_size: PositiveInt = 128
    validation_size: PositiveInt = 1024
    picture_size: int = Field(84, ge=56, multiple_of=28)
    """Pixels a side."""
