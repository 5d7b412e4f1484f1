"""One question of a data set, as every other part of the program sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class EncodedImage:
    """A picture as the file holds it (PNG, JPEG, ...). It is decoded only when a prompt is made for it."""

    data: bytes = field(repr=False)
    path: str | None = None


@dataclass(frozen=True)
class Sample:
    """A question with its pictures and its answer.

    `question` holds one `<image>` mark for each picture, where the picture stands. `answer` is the bare gold answer.
    `columns` keeps every column of the data set but the pictures, as it came.
    """

    id: str
    """Unique over the data sets of a run: `source:row`."""
    source: str
    """Data set and split, as a person would name them: `builtin/train`, `geometry3k/train`."""
    row: int
    question: str
    answer: str
    images: tuple[EncodedImage, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what is asked and shown and of the answer: equal for the same problem in two data sets."""
        digest = hashlib.sha256(self.question.encode("utf-8", "surrogatepass"))
        for image in self.images:
            digest.update(b"\0image\0" + hashlib.sha256(image.data).digest())
        digest.update(b"\0answer\0" + self.answer.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, order=True)
class Draw:
    """One drawing of a question for rollouts. Groups are keyed by it, never by the prompt's text: the same question
    drawn twice in one batch makes two groups, and two questions with one text stay two."""

    question_id: str
    number: int
    """Counts the draws over the whole run."""
