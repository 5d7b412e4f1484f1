"""Comparison by math-verify and sympy, for what `answer` does not understand. It runs in worker processes alone:
nothing here bounds its own time or memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig

from fastrl_cli.rewards.answer import rounds_to
from fastrl_cli.rewards.text import clean
from fastrl_cli.rewards.units import Unit, split_unit

# Units are split off before: math-verify's own way drops them, and so equals 6 cm and 6 m.
_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
)
_DIGITS = 40
_RELATIVE = sympy.Float("1e-25", _DIGITS)
_RELATIVE_FLOAT = sympy.Float("1e-12", _DIGITS)
_DECIMAL = re.compile(r"^[-+]?\d*\.(\d+)$")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*°")
_PLAIN_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt(?![A-Za-z])|√")
_PLAIN_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_ROOT_ARGUMENT = re.compile(r"\\sqrt\s*(?:\(([^()]*)\)|(\d+))")
_FUNCTION_OF_ANGLE = re.compile(r"(?:sin|cos|tan|cot|sec|csc)[^+=<>-]*°$")
_FUNCTION = re.compile(r"(?<![A-Za-z\\])(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])")


def _latex(text: str) -> str:
    """A cleaned text as the parser wants it."""
    text = _FUNCTION.sub(r"\\\1", _PLAIN_PI.sub(r"\\pi ", _PLAIN_ROOT.sub(r"\\sqrt", text)))
    text = _ROOT_ARGUMENT.sub(lambda found: rf"\sqrt{{{found[1] or found[2]}}}", text)
    return _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)


@lru_cache(maxsize=2048)
def _parse(text: str) -> Any:
    """The sympy object of a cleaned text, or None."""
    found = parse(f"${_latex(text)}$", [_LATEX], fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found else None


def _with_unit(text: str) -> Iterator[tuple[Any, Unit | None, str]]:
    """Parsed forms of a text: without its unit where it has one, else whole."""
    cleaned = clean(text)
    core, unit = split_unit(cleaned)
    if unit is not None and not _FUNCTION_OF_ANGLE.search(cleaned):
        parsed = _parse(core)
        if parsed is not None:
            yield parsed, unit, core
            return
    parsed = _parse(cleaned)
    if parsed is not None:
        yield parsed, None, cleaned


def warm_up() -> None:
    """The parser builds its tables on first use, which takes longer than most answers."""
    equal(r"(x-1)(x+1)+\frac{1}{2}", r"x^{2}-\sqrt{\frac{1}{4}}")


def parses(text: str) -> bool:
    """Whether math-verify reads the whole text as mathematics."""
    return next(_with_unit(text), None) is not None


def equal(a: str, b: str) -> bool:
    """Whether two bare answers are equal. Symmetric: math-verify is asked in both directions."""
    left, right = next(_with_unit(a), None), next(_with_unit(b), None)
    if left is None or right is None:
        return False
    x, unit_x, text_x = left
    y, unit_y, text_y = right
    if unit_x is not None and unit_y is not None and unit_x != unit_y:
        if unit_x.dimension != unit_y.dimension or not _constant(x) or not _constant(y):
            return False
        x, y = _scaled(x, unit_x), _scaled(y, unit_y)
    if _constant(x) and _constant(y):
        return _equal_constants(x, y, text_x, text_y)
    if _equation_against_value(x, y) or _equation_against_value(y, x):
        return False
    if not (_verify(x, y) or _verify(y, x)):
        return False
    return not (isinstance(x, sympy.Expr) and isinstance(y, sympy.Expr)) or _agree_at_points(x, y)


def _equation_against_value(x: Any, y: Any) -> bool:
    """`a + b = 0` is not 0: only the right side of a definition (`f(x) = ...`) stands for its whole."""
    names = (sympy.Symbol, sympy.core.function.AppliedUndef)
    return isinstance(x, sympy.Eq) and isinstance(y, sympy.Expr) and not isinstance(x.lhs, names)


def _scaled(value: Any, unit: Unit) -> Any:
    return value * sympy.Rational(unit.factor.numerator, unit.factor.denominator)


def _verify(gold: Any, prediction: Any) -> bool:
    return bool(verify(gold, prediction, timeout_seconds=None))


def _constant(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.free_symbols and value.is_number is not False


def _equal_constants(x: Any, y: Any, text_x: str, text_y: str) -> bool:
    """Numbers are compared to 25 digits relative to their size, so that tiny ones are not all zero."""
    if x == y:
        return x not in (sympy.nan, sympy.zoo)
    near = _RELATIVE_FLOAT if x.has(sympy.Float) or y.has(sympy.Float) else _RELATIVE
    a, b = _numeric(x), _numeric(y)
    if a is None or b is None:
        return False
    if bool(abs(a - b) <= near * max(abs(a), abs(b))):
        return True
    if not (a.is_real and b.is_real):
        return False
    da, db = Decimal(str(a)), Decimal(str(b))
    return rounds_to(da, db, _places(text_y)) or rounds_to(db, da, _places(text_x))


def _numeric(value: Any) -> Any:
    """The value to `_DIGITS` digits, or None where it is no finite number."""
    number = sympy.N(value.doit(), _DIGITS)
    real, imaginary = number.as_real_imag()
    return number if real.is_Float or real.is_Integer or imaginary.is_Float else None


def _places(text: str) -> int | None:
    found = _DECIMAL.match(text.replace(" ", ""))
    return len(found[1]) if found else None


def _agree_at_points(x: sympy.Expr, y: sympy.Expr) -> bool:
    """Two expressions held equal must have the same value wherever both have one: math-verify takes differences below
    1e-15 for zero. Points are positive rationals; where neither has a value there is nothing to object."""
    if isinstance(x, sympy.Symbol) or isinstance(y, sympy.Symbol):
        return True
    symbols = sorted(x.free_symbols | y.free_symbols, key=str)
    for shift in (3, 7):
        point = {symbol: sympy.Rational(shift + 2 * i, 5 + i) for i, symbol in enumerate(symbols)}
        a, b = sympy.N(x.doit().subs(point), _DIGITS), sympy.N(y.doit().subs(point), _DIGITS)
        if a.is_number and b.is_number and abs(a - b) > sympy.Float("1e-10") * max(abs(a), abs(b)):
            return False
    return True
