"""The drawn problems: what decides them, that they are right, and that only the picture tells the answer."""

from __future__ import annotations

import io
import math
from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastrl_cli.data.builtin import builtin_samples, draw_problem
from fastrl_cli.data.builtin.canvas import FILLS, INKS, PAPERS, THICKNESSES, Canvas, Style
from fastrl_cli.data.builtin.kinds import KINDS, AngleSum, Kind, TriangleArea
from fastrl_cli.data.builtin.problems import SHARES, Problem
from fastrl_cli.rewards import grade, well_formed

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def paint(kind: Kind, problem: Problem, style: Style | None = None, size: int = 84, **placement: int) -> bytes:
    canvas = Canvas(size, style or problem.style)
    kind.paint(canvas, problem.values, {**problem.placement, **placement})
    return canvas.picture().tobytes()


def first_of(kind: Kind, start: int = 0) -> Problem:
    return draw_problem(7, "train", KINDS.index(kind) + start * len(KINDS))


def test_at_least_five_kinds_take_turns() -> None:
    names = [draw_problem(0, "train", index).kind for index in range(2 * len(KINDS))]
    assert len(set(names)) == len(KINDS) >= 5
    assert names == [kind.name for kind in KINDS] * 2


@given(seed=st.integers(0, 1000), index=st.integers(0, 10**6), split=st.sampled_from(sorted(SHARES)))
@settings(max_examples=30, deadline=None)
def test_seed_split_and_index_decide_a_problem(seed: int, index: int, split: str) -> None:
    first, second = (draw_problem(seed, split, index) for _ in range(2))
    assert first.image.tobytes() == second.image.tobytes()
    assert (first.values, first.placement, first.style) == (second.values, second.placement, second.style)
    other = draw_problem(seed + 1, split, index)
    assert (first.values, first.placement, first.style) != (other.values, other.placement, other.style)


def test_size_changes_the_pixels_and_not_the_problem() -> None:
    small, large = draw_problem(0, "train", 3, 84), draw_problem(0, "train", 3, 448)
    assert (small.image.size, large.image.size) == ((84, 84), (448, 448))
    assert (small.answer, small.values, small.placement) == (large.answer, large.values, large.placement)


def test_splits_share_no_content_whatever_the_seed() -> None:
    def content(split: str) -> list[str]:
        return [sample.fingerprint for seed in (0, 1) for sample in builtin_samples(split, 600, 56, seed)]

    contents = {split: content(split) for split in SHARES}
    distinct = set().union(*contents.values())
    assert sum(len(set(prints)) for prints in contents.values()) == len(distinct)
    assert len(distinct) >= 0.998 * sum(map(len, contents.values()))


@kinds
def test_a_kind_has_at_least_100_000_pictures(kind: Kind) -> None:
    rng = Random(0)
    shapes = set()
    for _ in range(2000):
        values = kind.draw_values(rng)
        shapes.add((*values.items(), *kind.draw_placement(rng, values).items()))
    assert Style.count() == len(PAPERS) * len(INKS) * len(FILLS) * len(THICKNESSES)
    assert len(shapes) * Style.count() >= 100_000


@kinds
def test_every_part_of_the_style_shows(kind: Kind) -> None:
    problem = first_of(kind)
    style = problem.style
    changed = [
        replace(style, paper=next(colour for colour in PAPERS if colour != style.paper)),
        replace(style, ink=next(colour for colour in INKS if colour != style.ink)),
        replace(style, fill=next(colour for colour in FILLS if colour != style.fill)),
        *(replace(style, thickness=thickness) for thickness in THICKNESSES if thickness != style.thickness),
    ]
    pictures = {paint(kind, problem, other) for other in [style, *changed]}
    assert len(pictures) == 1 + len(changed)


@kinds
def test_every_part_of_the_placement_shows(kind: Kind) -> None:
    for start in range(5):
        problem = first_of(kind, start)
        for name, value in problem.placement.items():
            moved = value - 1 if value > 0 else value + 1
            assert paint(kind, problem, **{name: moved}) != paint(kind, problem), name


def true_answer(problem: Problem) -> float:
    """The answer worked out another way than the kind does."""
    values = problem.values
    if problem.kind == "rectangle_area":
        return sum(1 for _ in range(values["width"]) for _ in range(values["height"]))
    if problem.kind == "rectangle_perimeter":
        return sum((values["width"], values["height"], values["width"], values["height"]))
    if problem.kind == "triangle_area":
        return _shoelace([(0, 0), (values["width"], 0), (0, values["height"])])
    if problem.kind == "angle_sum":
        return _angle_sum(problem)
    if problem.kind == "ruler_distance":
        return len(range(values["first"], values["second"]))
    assert problem.kind == "supplement_angle"
    return math.degrees(math.acos(-math.cos(math.radians(values["angle"]))))


def _shoelace(points: list[tuple[float, float]]) -> float:
    pairs = zip(points, points[1:] + points[:1], strict=True)
    return abs(sum(x * v - u * y for (x, y), (u, v) in pairs)) / 2


def _angle_sum(problem: Problem) -> float:
    """Interior angles measured at the drawn corners."""
    corners = problem.values["corners"]
    radii = [problem.placement["radius"] + problem.placement[f"corner_{i}"] for i in range(corners)]
    points = [
        complex(radius * math.cos(2 * math.pi * i / corners), radius * math.sin(2 * math.pi * i / corners))
        for i, radius in enumerate(radii)
    ]
    total = 0.0
    for i, corner in enumerate(points):
        before, after = points[i - 1] - corner, points[(i + 1) % corners] - corner
        total += math.degrees(np.angle(before / after)) % 360
    return total


def test_answers_are_right() -> None:
    for index in range(600):
        problem = draw_problem(3, "validation", index, 56)
        assert true_answer(problem) == pytest.approx(int(problem.answer), abs=1e-6), problem


def test_drawn_areas_are_the_answers() -> None:
    """The coloured part of the picture, measured in cells of the grid."""
    for index in range(0, 60 * len(KINDS)):
        problem = draw_problem(4, "train", index, 84)
        if problem.kind not in ("rectangle_area", "triangle_area"):
            continue
        plain = Canvas(84, problem.style)
        KINDS[index % len(KINDS)].paint(plain, {"width": 0, "height": 0}, {"column": 0, "row": 0, "missing_corner": 0})
        different = (np.asarray(problem.image, int) != np.asarray(plain.picture(), int)).any(-1).sum() / 100
        border = 2 * (problem.values["width"] + problem.values["height"]) * 0.15 + 1
        assert abs(different - int(problem.answer)) < border, problem


def test_solutions_end_with_the_boxed_answer_and_are_graded_right() -> None:
    for index in range(4 * len(KINDS)):
        problem = draw_problem(5, "train", index)
        assert problem.solution.endswith(f"</thinking>\\boxed{{{problem.answer}}}")
        assert problem.work.endswith(problem.answer)
        assert well_formed(problem.solution)
        assert grade(problem.solution, problem.answer).correct


def test_the_question_tells_nothing_and_no_constant_answer_is_common() -> None:
    problems = [draw_problem(6, "validation", index, 56) for index in range(1800)]
    questions, answers = defaultdict(set), defaultdict(Counter)
    for problem in problems:
        questions[problem.kind].add(problem.question)
        answers[problem.kind][problem.answer] += 1
    assert all(len(texts) == 1 for texts in questions.values())
    best = sum(counts.most_common(1)[0][1] for counts in answers.values()) / len(problems)
    assert best < 0.16


def test_samples_hold_png_pictures_and_what_is_known_of_the_problem() -> None:
    samples = builtin_samples("train", 12, 112, 9)
    again = builtin_samples("train", 12, 112, 9)
    assert [sample.images[0].data for sample in samples] == [sample.images[0].data for sample in again]
    for index, sample in enumerate(samples):
        problem = draw_problem(9, "train", index, 112)
        picture = Image.open(io.BytesIO(sample.images[0].data))
        assert (picture.format, picture.tobytes()) == ("PNG", problem.image.tobytes())
        assert (sample.id, sample.source, sample.row) == (f"builtin/train:{index}", "builtin/train", index)
        assert (sample.question, sample.answer) == (f"<image>{problem.question}", problem.answer)
        assert sample.columns == {"kind": problem.kind, "solution": problem.solution}


def test_triangles_have_whole_areas_and_polygons_every_number_of_corners() -> None:
    rng = Random(1)
    sides = [TriangleArea().draw_values(rng) for _ in range(500)]
    assert all(values["width"] * values["height"] % 2 == 0 for values in sides)
    assert {AngleSum().draw_values(rng)["corners"] for _ in range(500)} == set(range(3, 9))
