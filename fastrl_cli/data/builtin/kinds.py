"""The kinds of drawn problems: a constant question, what the picture shows, and the worked solution.

The question of a kind is the same text for every problem, so the answer is in the picture alone. `values` are the whole
numbers that the picture shows, and `placement` those that only move it about; together with the style they make the
picture, and no two give the same one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import ClassVar, TypeAlias

from fastrl_cli.data.builtin.canvas import UNITS, Canvas, Point

Numbers: TypeAlias = Mapping[str, int]

CELL = 10
CELLS = 8
MARGIN = (UNITS - CELL * CELLS) // 2
SIDES = range(2, CELLS + 1)
MAX_CORNERS = 8


class Kind(ABC):
    """One kind of problem."""

    name: ClassVar[str]
    question: ClassVar[str]

    @abstractmethod
    def draw_values(self, rng: Random) -> dict[str, int]:
        """The numbers that decide the answer."""

    @abstractmethod
    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        """The numbers that do not."""

    @abstractmethod
    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        """Draw the problem. Nothing is typed into the picture."""

    @abstractmethod
    def work(self, values: Numbers) -> tuple[str, int]:
        """The right reasoning in a few words, and the answer."""


class GridRectangle(Kind):
    """A rectangle whose sides lie on a unit grid."""

    def draw_values(self, rng: Random) -> dict[str, int]:
        return {"width": rng.choice(SIDES), "height": rng.choice(SIDES)}

    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        return {"column": rng.randint(0, CELLS - values["width"]), "row": rng.randint(0, CELLS - values["height"])}

    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        canvas.outline(_corners(values, placement))
        canvas.grid((MARGIN, MARGIN), CELL, CELLS)


class RectangleArea(GridRectangle):
    name = "rectangle_area"
    question = "What is the area of the rectangle on the unit grid?"

    def work(self, values: Numbers) -> tuple[str, int]:
        width, height = values["width"], values["height"]
        return f"multiply {width}*{height}={width * height}", width * height


class RectanglePerimeter(GridRectangle):
    name = "rectangle_perimeter"
    question = "What is the perimeter of the rectangle on the unit grid?"

    def work(self, values: Numbers) -> tuple[str, int]:
        width, height = values["width"], values["height"]
        return f"double {width}+{height}={width + height} to {2 * (width + height)}", 2 * (width + height)


class TriangleArea(Kind):
    """A right triangle whose legs lie on a unit grid; their product is even, so that the area is a whole number."""

    name = "triangle_area"
    question = "What is the area of the right triangle on the unit grid?"

    def draw_values(self, rng: Random) -> dict[str, int]:
        while True:
            values = {"width": rng.choice(SIDES), "height": rng.choice(SIDES)}
            if values["width"] * values["height"] % 2 == 0:
                return values

    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        return {
            "column": rng.randint(0, CELLS - values["width"]),
            "row": rng.randint(0, CELLS - values["height"]),
            "missing_corner": rng.randrange(4),
        }

    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        corners = _corners(values, placement)
        del corners[placement["missing_corner"]]
        canvas.outline(corners)
        canvas.grid((MARGIN, MARGIN), CELL, CELLS)

    def work(self, values: Numbers) -> tuple[str, int]:
        product = values["width"] * values["height"]
        return f"halve {values['width']}*{values['height']}={product} to {product // 2}", product // 2


class AngleSum(Kind):
    """The sum of the interior angles of a polygon, regular or not, whose corners are marked."""

    name = "angle_sum"
    question = "What is the sum of the interior angles of the polygon in degrees?"

    def draw_values(self, rng: Random) -> dict[str, int]:
        return {"corners": rng.randint(3, MAX_CORNERS)}

    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        corners = values["corners"]
        placement = {"x": rng.randint(40, 44), "y": rng.randint(40, 44), "radius": rng.randint(26, 34)}
        placement |= {"turn": rng.randrange(360 // corners)}
        return placement | {f"corner_{i}": rng.randint(-3, 3) for i in range(corners)}

    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        corners = values["corners"]
        points = [
            _polar(
                (placement["x"], placement["y"]),
                placement["radius"] + placement[f"corner_{i}"],
                placement["turn"] + 360 * i / corners,
            )
            for i in range(corners)
        ]
        canvas.outline(points)
        for point in points:
            canvas.dot(point, 3, canvas.style.ink)

    def work(self, values: Numbers) -> tuple[str, int]:
        triangles = values["corners"] - 2
        return f"triangles {values['corners']}-2={triangles} times 180={180 * triangles}", 180 * triangles


class RulerDistance(Kind):
    """The distance between two marked points on a ruler with a tick at every unit."""

    name = "ruler_distance"
    question = "How far apart are the two marked points on the ruler?"
    ticks: ClassVar[int] = 9
    gap: ClassVar[int] = 8

    def draw_values(self, rng: Random) -> dict[str, int]:
        distance = rng.randint(1, self.ticks - 1)
        first = rng.randint(0, self.ticks - distance)
        return {"first": first, "second": first + distance}

    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        return {"x": rng.randint(4, 8), "y": rng.randint(24, 60), "height": rng.randint(6, 14)}

    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        x, y, ink, thickness = placement["x"], placement["y"], canvas.style.ink, canvas.style.thickness
        for tick in range(self.ticks + 1):
            length = placement["height"] if tick % 5 == 0 else placement["height"] / 2
            canvas.line([(x + tick * self.gap, y), (x + tick * self.gap, y + length)], ink, 1)
        canvas.line([(x, y), (x + self.ticks * self.gap, y)], ink, thickness)
        for mark in (values["first"], values["second"]):
            canvas.dot((x + mark * self.gap, y - 4), 3, ink)
            canvas.dot((x + mark * self.gap, y - 4), 2, canvas.style.fill)

    def work(self, values: Numbers) -> tuple[str, int]:
        distance = values["second"] - values["first"]
        return f"gaps {values['second']}-{values['first']}={distance}", distance


class SupplementAngle(Kind):
    """A ray stands on a straight line; the angle on one side is marked, the other one is asked for."""

    name = "supplement_angle"
    question = "How large is the angle beside the marked angle on the straight line in degrees?"
    step: ClassVar[int] = 15

    def draw_values(self, rng: Random) -> dict[str, int]:
        return {"angle": self.step * rng.randrange(1, 180 // self.step)}

    def draw_placement(self, rng: Random, values: Numbers) -> dict[str, int]:
        below = rng.randrange(2)
        return {
            "x": rng.randint(34, 50),
            "y": rng.randint(18, 28) if below else rng.randint(56, 66),
            "below": below,
            "left": rng.randrange(2),
            "ray": rng.randint(26, 32),
            "arc": rng.randint(10, 16),
        }

    def paint(self, canvas: Canvas, values: Numbers, placement: Numbers) -> None:
        centre = (placement["x"], placement["y"])
        start, end = (0, values["angle"]) if placement["below"] else (360 - values["angle"], 360)
        if placement["left"]:
            start, end = (180 - end, 180 - start) if placement["below"] else (540 - end, 540 - start)
        ray = end if placement["below"] != placement["left"] else start
        canvas.sector(centre, placement["arc"], start, end, canvas.style.fill)
        ink, thickness = canvas.style.ink, canvas.style.thickness
        canvas.line([(4, centre[1]), (UNITS - 4, centre[1])], ink, thickness)
        canvas.line([centre, _polar(centre, placement["ray"], ray)], ink, thickness)

    def work(self, values: Numbers) -> tuple[str, int]:
        rest = 180 - values["angle"]
        return f"rest 180-{values['angle']}={rest}", rest


KINDS: tuple[Kind, ...] = (
    RectangleArea(),
    RectanglePerimeter(),
    TriangleArea(),
    AngleSum(),
    RulerDistance(),
    SupplementAngle(),
)


def _corners(values: Numbers, placement: Numbers) -> list[Point]:
    left, top = MARGIN + CELL * placement["column"], MARGIN + CELL * placement["row"]
    right, bottom = left + CELL * values["width"], top + CELL * values["height"]
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _polar(centre: Point, radius: float, degrees: float) -> Point:
    """A point `degrees` clockwise from the right, as pictures count."""
    angle = math.radians(degrees)
    return centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)
