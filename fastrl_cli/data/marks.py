"""The `<image>` marks of a question: where each of its pictures stands in the text."""

from __future__ import annotations

IMAGE_MARK = "<image>"


def with_marks(question: str, pictures: int) -> str:
    """`question` with a mark for each of its pictures: missing marks go in front. Surplus marks are left, for whoever
    makes the prompt to refuse."""
    return IMAGE_MARK * max(0, pictures - question.count(IMAGE_MARK)) + question


def split_at_marks(question: str) -> list[str]:
    """The texts before, between and after the marks: one more than there are marks, some of them empty."""
    return question.split(IMAGE_MARK)
