from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastrl_cli.rewards import surd

terms = st.tuples(
    st.tuples(st.sampled_from([1, 2, 3, 5, 6, 10, 12, 18, 221]), st.integers(0, 2)),
    st.fractions(min_value=-50, max_value=50, max_denominator=30),
)


def build(parts: list[tuple[tuple[int, int], object]]) -> surd.Surd:
    total = surd.rational(0)
    for (radicand, power), coefficient in parts:
        text = rf"{coefficient}\sqrt{{{radicand}}}" + r"\pi" * power
        value = surd.parse(text)
        assert value is not None
        total = surd.add(total, value)
    return total


surds = st.lists(terms, max_size=3).map(build)


def number(value: surd.Surd) -> float:
    return float(value.decimal())


@given(surds, surds)
def test_sums_and_products_have_the_values_of_floats(a: surd.Surd, b: surd.Surd):
    size = 1 + abs(number(a)) + abs(number(b))
    assert math.isclose(number(surd.add(a, b)), number(a) + number(b), abs_tol=1e-9 * size)
    assert math.isclose(number(surd.multiply(a, b)), number(a) * number(b), rel_tol=1e-9, abs_tol=1e-7 * size)


@given(surds, surds)
def test_equal_exactly_when_the_difference_vanishes(a: surd.Surd, b: surd.Surd):
    difference = surd.add(a, surd.scale(b, surd.Fraction(-1)))
    assert (a == b) == (difference.terms == ())
    assert surd.add(difference, b) == a


@given(surds, surds)
def test_division_undoes_multiplication(a: surd.Surd, b: surd.Surd):
    assume(b.terms)
    try:
        assert surd.divide(surd.multiply(a, b), b) == a
    except surd.NotExact:
        assert len(b.terms) > 1


@given(st.integers(1, 10**6))
def test_squarefree(n: int):
    square, free = surd._squarefree(n)
    assert square * square * free == n
    assert all(free % (p * p) for p in range(2, math.isqrt(free) + 1))


@pytest.mark.parametrize(
    "text",
    ["", "x", "2 3", "1/0", r"\frac{1}{0}", r"\sqrt{-2}", r"\sqrt{\sqrt{2}}", "2^{100000}", "2^x", "0^0", "(", "5)",
     "1" * 80, r"\sqrt{99999999999999}", "(" * 100 + "1" + ")" * 100, "e", r"\frac{1}{\pi+1}", "2++", "--2",
     r"\sqrt[3]{8}"],
)  # fmt: skip
def test_what_is_not_exact_is_left_to_others(text: str):
    assert surd.parse(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("2^{-3}", 0.125), ("4^{1/2}", 2), ("2^0.5", math.sqrt(2)), ("-2^2", -4), ("(-2)^2", 4), ("2*-3", -6),
     ("6/2*3", 9), (r"\frac{1}{2}\pi", math.pi / 2), (r"2\frac{1}{3}", 7 / 3), (r"2\frac{5}{3}", 10 / 3),
     ("1.5e3", 1500)],
)  # fmt: skip
def test_values(text: str, value: float):
    parsed = surd.parse(text)
    assert parsed is not None
    assert math.isclose(number(parsed), value)
