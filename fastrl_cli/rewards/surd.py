"""Exact values without a computer algebra system: sums of rationals times square roots times powers of pi.

Square roots of distinct squarefree integers are linearly independent over the rationals and pi is transcendental, so
two such sums are equal exactly when their terms are. That decides nearly every answer of the geometry data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt

MAX_RADICAND = 10**12
MAX_BITS = 4096
MAX_NESTING = 40
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628621")
_CONTEXT = Context(prec=60)

Term = tuple[int, int]
"""(squarefree radicand, power of pi)"""


class NotExact(Exception):
    """The text, or the value of an operation, lies outside of what this module represents."""


@dataclass(frozen=True)
class Surd:
    """A sum of `coefficient * sqrt(radicand) * pi ** power`, in canonical order, without zero terms."""

    terms: tuple[tuple[Term, Fraction], ...]

    @property
    def rational(self) -> Fraction | None:
        """The value where it is rational, else None."""
        if not self.terms:
            return Fraction(0)
        (key, value), *rest = self.terms
        return value if not rest and key == (1, 0) else None

    def decimal(self) -> Decimal:
        """The value to about 50 digits."""
        total = Decimal(0)
        for (radicand, power), coefficient in self.terms:
            term = _CONTEXT.divide(Decimal(coefficient.numerator), Decimal(coefficient.denominator))
            term = _CONTEXT.multiply(term, _CONTEXT.sqrt(Decimal(radicand)))
            term = _CONTEXT.multiply(term, _CONTEXT.power(_PI, power))
            total = _CONTEXT.add(total, term)
        return total


def _surd(terms: Iterable[tuple[Term, Fraction]]) -> Surd:
    total: dict[Term, Fraction] = {}
    for key, value in terms:
        total[key] = total.get(key, Fraction(0)) + value
    kept = sorted((key, value) for key, value in total.items() if value)
    if len(kept) > 16 or any(max(v.numerator.bit_length(), v.denominator.bit_length()) > MAX_BITS for _, v in kept):
        raise NotExact
    return Surd(tuple(kept))


def rational(value: Fraction | int) -> Surd:
    return _surd([((1, 0), Fraction(value))])


def add(a: Surd, b: Surd) -> Surd:
    return _surd([*a.terms, *b.terms])


def scale(a: Surd, factor: Fraction) -> Surd:
    return _surd((key, value * factor) for key, value in a.terms)


@lru_cache(maxsize=4096)
def _squarefree(n: int) -> tuple[int, int]:
    """(s, r) with n = s * s * r and r squarefree. After all primes up to the cube root are divided out, what is left
    has at most two prime factors, so it is squarefree or a square."""
    if n > MAX_RADICAND:
        raise NotExact
    square, free, p = 1, 1, 2
    while p * p * p <= n:
        power = 0
        while n % p == 0:
            n, power = n // p, power + 1
        square *= p ** (power // 2)
        free *= p ** (power % 2)
        p += 1
    root = isqrt(n)
    return (square * root, free) if root * root == n else (square, free * n)


def multiply(a: Surd, b: Surd) -> Surd:
    """Product; radicands share factors, so each pair is reduced again."""
    products = []
    for (ra, pa), va in a.terms:
        for (rb, pb), vb in b.terms:
            outer, inner = _squarefree(ra * rb)
            products.append(((inner, pa + pb), va * vb * outer))
    return _surd(products)


def square_root(a: Surd) -> Surd:
    value = a.rational
    if value is None or value < 0:
        raise NotExact
    outer, inner = _squarefree(value.numerator * value.denominator) if value else (0, 1)
    return _surd([((inner, 0), Fraction(outer, value.denominator))])


def divide(a: Surd, b: Surd) -> Surd:
    """Quotient where the denominator is one term, or two without pi (then by its conjugate)."""
    if not b.terms:
        raise NotExact
    if len(b.terms) == 1:
        ((radicand, power), value), *_ = b.terms
        return multiply(a, _surd([((radicand, -power), 1 / (value * radicand))]))
    if len(b.terms) == 2 and all(power == 0 for (_, power), _ in b.terms):
        first, (key, value) = b.terms
        conjugate = _surd([first, (key, -value)])
        return divide(multiply(a, conjugate), multiply(b, conjugate))
    raise NotExact


def power(base: Surd, exponent: Surd) -> Surd:
    """Integer and half-integer powers of bounded size."""
    value = exponent.rational
    if value is None or value.denominator > 2 or abs(value) > MAX_BITS:
        raise NotExact
    if value.denominator == 2:
        return power(square_root(base), rational(value.numerator))
    count, bits = abs(value.numerator), max((v.numerator.bit_length() for _, v in base.terms), default=1)
    if count * bits > MAX_BITS or (len(base.terms) > 1 and count > 8) or (count == 0 and not base.terms):
        raise NotExact
    result = rational(1)
    for _ in range(count):
        result = multiply(result, base)
    return divide(rational(1), result) if value < 0 else result


_NUMBER = re.compile(r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}(?!\d))?")
_INTEGER_FRACTION = re.compile(r"\\frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)\s*(\d)(?!\d))")
_MULTIPLY = re.compile(r"\*|\\cdot(?![A-Za-z])|\\times(?![A-Za-z])")
_PI_NAME = re.compile(r"\\pi(?![A-Za-z])|pi(?![A-Za-z])")
_ROOT = re.compile(r"\\sqrt(?![A-Za-z])|sqrt(?![A-Za-z])|√")
_FRACTION = re.compile(r"\\frac(?![A-Za-z])")
_MIXED = re.compile(r"^(-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)$")
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class _Parser:
    """Recursive descent over a cleaned text; raises `NotExact` at the first thing that it does not know."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def peek(self) -> str:
        while self.position < len(self.text) and self.text[self.position] == " ":
            self.position += 1
        return self.text[self.position : self.position + 1]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.peek()
        found = pattern.match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def whole(self) -> Surd:
        value = self.sum()
        if self.peek():
            raise NotExact
        return value

    def sum(self) -> Surd:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise NotExact
        sign = self.sign()
        total = scale(self.product(), sign)
        while self.peek() in ("+", "-"):
            sign = self.sign()
            total = add(total, scale(self.product(), sign))
        self.depth -= 1
        return total

    def sign(self) -> Fraction:
        sign = Fraction(1)
        if self.peek() in ("+", "-"):
            sign = Fraction(-1 if self.peek() == "-" else 1)
            self.position += 1
        return sign

    def product(self) -> Surd:
        value = self.mixed() or self.factor()
        while True:
            if self.take(_MULTIPLY):
                value = multiply(value, self.signed_factor())
            elif self.peek() == "/":
                self.position += 1
                value = divide(value, self.signed_factor())
            elif self.starts_factor():
                value = multiply(value, self.factor())
            else:
                return value

    def signed_factor(self) -> Surd:
        sign = self.sign()
        return scale(self.factor(), sign)

    def starts_factor(self) -> bool:
        """A number never follows by juxtaposition: `2 3` is no product."""
        following = self.peek()
        if following in ("(", "{"):
            return True
        return any(p.match(self.text, self.position) for p in (_PI_NAME, _ROOT, _FRACTION))

    def mixed(self) -> Surd | None:
        """`3\\frac{1}{2}` is three and a half, as schools write it."""
        start = self.position
        whole = self.take(_NUMBER)
        found = self.take(_INTEGER_FRACTION) if whole and whole[0].isdigit() else None
        if whole and found:
            above, below = int(found[1] or found[3]), int(found[2] or found[4])
            if 0 < above < below and self.peek() != "^":
                return rational(int(whole[0]) + Fraction(above, below))
        self.position = start
        return None

    def factor(self) -> Surd:
        base = self.base()
        if self.peek() != "^":
            return base
        self.position += 1
        if self.peek() == "{" or self.peek() == "(":
            return power(base, self.group())
        sign = self.sign()
        return power(base, scale(self.factor(), sign))

    def base(self) -> Surd:
        number = self.take(_NUMBER)
        if number:
            if len(number[0]) > 60:
                raise NotExact
            return rational(Fraction(number[0]))
        if self.take(_PI_NAME):
            return _surd([((1, 1), Fraction(1))])
        if self.take(_FRACTION):
            above = self.argument()
            return divide(above, self.argument())
        if self.take(_ROOT):
            return self.root()
        if self.peek() in ("(", "{"):
            return self.group()
        raise NotExact

    def root(self) -> Surd:
        if self.peek() == "[" and self.group().rational != 2:
            raise NotExact
        if self.peek() in ("(", "{"):
            return square_root(self.group())
        return square_root(self.base())

    def argument(self) -> Surd:
        """An argument of `\\frac`: a group, or a single character."""
        if self.peek() == "{":
            return self.group()
        if self.peek().isdigit():
            self.position += 1
            return rational(int(self.text[self.position - 1]))
        return self.base()

    def group(self) -> Surd:
        closing = _CLOSING[self.peek()]
        self.position += 1
        value = self.sum()
        if self.peek() != closing:
            raise NotExact
        self.position += 1
        return value


@lru_cache(maxsize=8192)
def parse(text: str) -> Surd | None:
    """The exact value of a cleaned text, or None where this module cannot say."""
    mixed = _MIXED.match(text)
    try:
        if mixed:
            value = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
            return rational(-value if mixed[1] else value)
        return _Parser(text).whole()
    except (NotExact, ZeroDivisionError, RecursionError, ValueError):
        return None
