"""A square picture with its own units, whatever its number of pixels, and the colours of the drawn problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from PIL import Image, ImageDraw

UNITS = 84
"""Side of a picture in drawing units: one unit is one pixel at the smallest usual size."""
OVERSAMPLING = 2
"""Pixels drawn for each pixel kept, a side: a cheap anti-aliasing."""

Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]


def _colours(low: int, middle: int, high: int) -> tuple[Colour, ...]:
    levels = (low, middle, high)
    return tuple((red, green, blue) for red in levels for green in levels for blue in levels)


PAPERS = _colours(226, 240, 254)
INKS = _colours(8, 56, 104)
FILLS = _colours(128, 160, 192)
THICKNESSES: tuple[float, ...] = (1.0, 2.0, 3.0)
"""Far enough apart to differ at 56 pixels."""


@dataclass(frozen=True)
class Style:
    """How a problem looks; it never bears on the answer. Every field shows in every picture."""

    paper: Colour
    ink: Colour
    fill: Colour
    thickness: float

    @classmethod
    def draw(cls, rng: Random) -> Style:
        return cls(rng.choice(PAPERS), rng.choice(INKS), rng.choice(FILLS), rng.choice(THICKNESSES))

    @staticmethod
    def count() -> int:
        """Number of different styles."""
        return len(PAPERS) * len(INKS) * len(FILLS) * len(THICKNESSES)


class Canvas:
    """Draws in units of `UNITS` a side, origin at the top left."""

    def __init__(self, size: int, style: Style) -> None:
        self.style = style
        self._size = size
        self._scale = size * OVERSAMPLING / UNITS
        self._image = Image.new("RGB", (size * OVERSAMPLING,) * 2, style.paper)
        self._draw = ImageDraw.Draw(self._image)

    def line(self, points: Sequence[Point], colour: Colour, thickness: float) -> None:
        self._draw.line(self._pixels(points), fill=colour, width=self._width(thickness), joint="curve")

    def polygon(self, points: Sequence[Point], fill: Colour) -> None:
        self._draw.polygon(self._pixels(points), fill=fill)

    def outline(self, points: Sequence[Point]) -> None:
        """A filled shape with its border in ink."""
        self.polygon(points, self.style.fill)
        self.line([*points, points[0], points[1]], self.style.ink, self.style.thickness)

    def dot(self, centre: Point, radius: float, colour: Colour) -> None:
        self._draw.ellipse(self._box(centre, radius), fill=colour)

    def sector(self, centre: Point, radius: float, start: float, end: float, colour: Colour) -> None:
        """A pie slice from `start` to `end`, degrees clockwise from the right."""
        self._draw.pieslice(self._box(centre, radius), start, end, fill=colour)

    def grid(self, origin: Point, cell: float, cells: int) -> None:
        """Grid lines, between paper and ink in colour."""
        colour = tuple((3 * paper + ink) // 4 for paper, ink in zip(self.style.paper, self.style.ink, strict=True))
        (x, y), span = origin, cell * cells
        for i in range(cells + 1):
            at = i * cell
            self.line([(x + at, y), (x + at, y + span)], (colour[0], colour[1], colour[2]), 0.5)
            self.line([(x, y + at), (x + span, y + at)], (colour[0], colour[1], colour[2]), 0.5)

    def picture(self) -> Image.Image:
        """The finished picture, `size` pixels a side."""
        return self._image.reduce(OVERSAMPLING)

    def _pixels(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def _box(self, centre: Point, radius: float) -> list[Point]:
        (x, y) = centre
        return self._pixels([(x - radius, y - radius), (x + radius, y + radius)])

    def _width(self, thickness: float) -> int:
        return max(1, round(thickness * self._scale))
