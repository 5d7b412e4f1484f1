"""What the built-in model is shown in pre-training: worked solutions, a recorded share of them careless.

A base model that RL can improve knows the right method, does not always use it, and formats most of its answers. The
built-in model is made like that on purpose: what is seen and computed is right in every demonstration, but in
`CARELESS_SHARE` of them the *method* is a real mistake of its kind (the triangle is not halved, the perimeter not
doubled, sides are added in place of multiplied, every corner is counted as a triangle, ticks are counted in place of
gaps, the marked angle is given in place of its supplement), and `MALFORMED_SHARE` of them break the format. The first
word of the thinking names the method. So RL on this model shows which habits are rewarded; it teaches no new skill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from fastrl_cli.data.builtin import Problem

CARELESS_SHARE = 0.52
MALFORMED_SHARE = 0.08

Values = Mapping[str, int]


def demonstration(problem: Problem, rng: Random) -> str:
    """A response to imitate: right, careless or malformed, as `rng` decides."""
    work, answer = problem.work, problem.answer
    if rng.random() < CARELESS_SHARE:
        work, answer = careless(problem.kind, problem.values)
    if rng.random() >= MALFORMED_SHARE:
        return f"<thinking>{work}</thinking>\\boxed{{{answer}}}"
    if rng.random() < 0.5:
        return f"<thinking>{work} so \\boxed{{{answer}}}"
    return f"<thinking>{work}</thinking>{answer}"


def careless(kind: str, values: Values) -> tuple[str, str]:
    """The usual mistake of a kind of problem: its reasoning and its answer."""
    work, answer = MISTAKES[kind](values)
    return work, str(answer)


def _add_sides(values: Values) -> tuple[str, int]:
    total = values["width"] + values["height"]
    return f"add {values['width']}+{values['height']}={total}", total


def _forget_to_halve(values: Values) -> tuple[str, int]:
    product = values["width"] * values["height"]
    return f"multiply {values['width']}*{values['height']}={product}", product


def _triangle_a_corner(values: Values) -> tuple[str, int]:
    total = 180 * values["corners"]
    return f"corners {values['corners']} times 180={total}", total


def _count_ticks(values: Values) -> tuple[str, int]:
    ticks = values["second"] - values["first"] + 1
    return f"ticks {values['second']}-{values['first']}+1={ticks}", ticks


def _read_marked_angle(values: Values) -> tuple[str, int]:
    return f"same {values['angle']}", values["angle"]


MISTAKES: Mapping[str, Callable[[Values], tuple[str, int]]] = {
    "rectangle_area": _add_sides,
    "rectangle_perimeter": _add_sides,
    "triangle_area": _forget_to_halve,
    "angle_sum": _triangle_a_corner,
    "ruler_distance": _count_ticks,
    "supplement_angle": _read_marked_angle,
}
