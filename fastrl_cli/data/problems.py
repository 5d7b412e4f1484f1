"""Samples that cannot become a prompt. Training sets such a sample aside and counts it."""

from __future__ import annotations

from fastrl_cli.errors import DataError


class UnusableSampleError(DataError):
    """One sample cannot be used; the others can."""

    def __init__(self, sample_id: str, message: str) -> None:
        super().__init__(f"sample {sample_id}: {message}")
        self.sample_id = sample_id


class OverlongPromptError(UnusableSampleError):
    """The prompt has more tokens than `data.max_prompt_tokens`. A prompt is never truncated."""


class BadImageError(UnusableSampleError):
    """A picture cannot be read, or its size is of no use."""


class BadQuestionError(UnusableSampleError):
    """The question's text does not fit its pictures or the model's special tokens."""
