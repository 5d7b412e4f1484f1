"""Drawn geometry problems, each decided by (seed, split, index), and the samples made of them.

The splits are disjoint by construction: everything that makes a problem (its kind, its numbers, its style) is hashed,
the hash belongs to one split, and a draw that falls into another split's share is drawn again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Literal, TypeAlias

from PIL import Image

from fastrl_cli.data.builtin.canvas import Canvas, Style
from fastrl_cli.data.builtin.kinds import KINDS, Kind
from fastrl_cli.data.sample import EncodedImage, Sample

Split: TypeAlias = Literal["pretrain", "train", "validation"]

SHARES: Mapping[Split, range] = {"pretrain": range(0, 80), "train": range(80, 90), "validation": range(90, 100)}
"""Hundredths of the hash space."""
DEFAULT_SIZE = 84


@dataclass(frozen=True)
class Problem:
    """A drawn problem."""

    kind: str
    question: str
    answer: str
    image: Image.Image
    work: str
    """The right reasoning, a few words."""
    values: Mapping[str, int]
    """The numbers that the picture shows and that decide the answer."""
    placement: Mapping[str, int]
    style: Style

    @property
    def solution(self) -> str:
        """The whole right response."""
        return f"<thinking>{self.work}</thinking>\\boxed{{{self.answer}}}"


def draw_problem(seed: int, split: Split, index: int, size: int = DEFAULT_SIZE) -> Problem:
    """Problem `index` of a split. The kinds take turns. `size` is the picture's side in pixels, nothing else."""
    kind = KINDS[index % len(KINDS)]
    values, placement, style = _draw_parameters(kind, seed, split, index)
    canvas = Canvas(size, style)
    kind.paint(canvas, values, placement)
    work, answer = kind.work(values)
    return Problem(kind.name, kind.question, str(answer), canvas.picture(), work, values, placement, style)


def builtin_samples(split: Split, count: int, size: int = DEFAULT_SIZE, seed: int = 0) -> Sequence[Sample]:
    """The first `count` problems of a split as samples with PNG pictures; columns hold kind and worked solution."""
    return [_sample(draw_problem(seed, split, index, size), split, index) for index in range(count)]


def encode_png(image: Image.Image) -> bytes:
    """The picture as PNG bytes, the same on every call."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def _sample(problem: Problem, split: Split, index: int) -> Sample:
    source = f"builtin/{split}"
    return Sample(
        id=f"{source}:{index}",
        source=source,
        row=index,
        question=f"<image>{problem.question}",
        answer=problem.answer,
        images=(EncodedImage(encode_png(problem.image)),),
        columns={"kind": problem.kind, "solution": problem.solution},
    )


def _draw_parameters(kind: Kind, seed: int, split: Split, index: int) -> tuple[dict[str, int], dict[str, int], Style]:
    rng = Random(f"{seed}/{split}/{index}")
    while True:
        values = kind.draw_values(rng)
        placement = kind.draw_placement(rng, values)
        style = Style.draw(rng)
        if _share(kind, values, placement, style) in SHARES[split]:
            return values, placement, style


def _share(kind: Kind, values: Mapping[str, int], placement: Mapping[str, int], style: Style) -> int:
    content = json.dumps([kind.name, values, placement, asdict(style)], sort_keys=True)
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big") % 100
