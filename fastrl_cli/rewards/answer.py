"""The structure of a bare answer (number with unit, list, tuple, interval, ratio, option letter, words), compared.

Everything here is exact and needs no computer algebra. `compare` says True or False where both sides are understood
whole, and None where they are not: then `symbolic` decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

from fastrl_cli.rewards import surd
from fastrl_cli.rewards.surd import Surd
from fastrl_cli.rewards.text import balanced, clean, plain, split_top
from fastrl_cli.rewards.units import PERCENT, Unit, split_unit


@dataclass(frozen=True)
class Quantity:
    """An exact value with its unit."""

    value: Surd
    unit: Unit | None = None
    places: int | None = None
    """Digits after the point where the answer is a plain decimal."""
    label: str = ""
    """The left side of `x = 5`."""


@dataclass(frozen=True)
class Words:
    """An option letter or a text answer, without case."""

    text: str
    label: str = ""


@dataclass(frozen=True)
class Collection:
    """A list (`opening` empty), set (`{`), tuple, interval or ratio (`:`)."""

    opening: str
    closing: str
    items: tuple[Answer, ...]
    label: str = ""


@dataclass(frozen=True)
class Option:
    """An option letter together with its text: `B: 12`."""

    letter: str
    readings: tuple[Answer, ...]
    label: str = ""


Answer = Quantity | Words | Collection | Option

_AND = r"(?:\\text\s*\{\s*)?(?<![A-Za-z])(?:and|or)(?![A-Za-z])(?:\s*\})?"
_COMMA = re.compile(rf"\s*(?:,\s*{_AND}|[,;]|{_AND})\s*")
_COLON = re.compile(r"\s*:\s*")
_EQUALS = re.compile(r"(?<![<>!:])=(?!=)")
_NAMES = (
    "angle|triangle|overline|alpha|beta|gamma|theta|phi|odot|text|sin|cos|tan|cot|mathcal|parallelogram|bar|vec|widehat"
)
_NAME = rf"(?:\\(?:{_NAMES})|[A-Za-z])"
_SUBSCRIPT = r"_\s*(?:\{[^{}]*\}|\\?\w)"
_ARGUMENT = r"\([A-Za-z](?:,\s*[A-Za-z])*\)"
_LABEL = re.compile(
    rf"^\(?\s*{_NAME}(?:{_NAME}|['\s:°]|\{{[A-Za-z\s.]+\}}|{_SUBSCRIPT}|\d+(?=\s*[:,)]|$)|{_ARGUMENT}|,(?=.*\)))*\)?$"
)
_MEMBER = re.compile(r"^([A-Za-z](?:_\{?\w+\}?)?)\s*\\in(?![A-Za-z])\s*")
_OPTION = re.compile(r"^(?:\(\s*([A-Ha-h])\s*\)|([A-H])\s*[.:)])\s*(\S.*)$")
_LETTER = re.compile(r"^\(?\s*([A-Za-z])\s*\)?$")
_WORDS = re.compile(r"^[^\W\d_]+(?:[\s'-]+[^\W\d_]+)*[.!]?$")
_DECIMAL = re.compile(r"^[-+]?\d*\.(\d+)$")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:[,\s]\s?\d{3})+)(?![\d,]|\s\d)")
_DECIMAL_COMMA = re.compile(r"^([-+]?\d+),(\d{1,2}|\d{4,})$")
_LONG_DECIMAL_COMMA = re.compile(r"^([-+]?\d{4,}),(\d+)$")
_LEADING_ZERO = re.compile(r"(?:^|[,\s])0\d")
_CHOICE = re.compile(r"^(?:[Oo]ption|[Cc]hoice)\s*(?=\(?[A-Za-z]\b)")
_CURRENCY = re.compile(r"^(?:[€£¥]|US\s*(?=\d)|Rs\.?\s*(?=\d))\s*")
MIN_PLACES = 6
"""A decimal with this many places, and `MIN_DIGITS` significant digits, also equals what rounds or truncates to it."""
MIN_DIGITS = 5
MAX_PLACES = 12
"""Printed floats are wrong beyond."""


@lru_cache(maxsize=8192)
def readings(text: str) -> tuple[Answer, ...]:
    """What a bare answer may mean, none where it is not understood whole. Several where a comma is a list or part of a
    number: `12,500`."""
    return tuple(dict.fromkeys(_readings(clean(text))))


def _readings(text: str) -> list[Answer]:
    if not text or not balanced(text):
        return []
    label, body = _split_label(_unwrap(text))
    found = _body_readings(_unwrap(body))
    return [replace(answer, label=label) for answer in found] if label else found


def _unwrap(text: str) -> str:
    """Without parentheses or braces that only group, and without a box."""
    while True:
        inner = re.match(r"^\\(?:boxed|fbox)\s*\{(.*)\}$", text) or re.match(r"^\{(.*)\}$", text)
        if not inner or not balanced(inner[1]) or (re.search(r"(?<!\\)[,;]", inner[1]) and text.startswith("{")):
            return text
        text = inner[1].strip()


def _split_label(text: str) -> tuple[str, str]:
    """(name on the left side, what it equals). Of a chain of equations the last side counts."""
    member = _MEMBER.match(text)
    if member:
        return member[1], text[member.end() :]
    sides = [side.strip() for side in split_top(text, _EQUALS)]
    if len(sides) == 1 or (len(split_top(text, _COMMA)) > 1 and not _LABEL.match(sides[0])):
        return "", text
    if _LABEL.match(sides[0]):
        if len(split_top(text, _COMMA)) > 1 and not sides[0].startswith("("):
            return "", text
        return _label(sides[0]), sides[-1]
    if all(_quantity(side) for side in sides):
        return "", sides[-1]
    return "", text


def _label(text: str) -> str:
    """Names are compared without blanks and `\\text`; descriptive words ("Area") say nothing about the value."""
    name = re.sub(r"^m\s*(?=\\angle)", "", re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text))
    if re.fullmatch(r"[A-Za-z ]+", name) and (len(name) > 3 or (not name.isupper() and len(name) > 2)):
        return ""
    return re.sub(r"[\s{}]|\\overline|\\bar", "", name)


def _body_readings(text: str) -> list[Answer]:
    text = _CHOICE.sub("", text)
    option = _OPTION.match(text)
    if option:
        inner = _readings(option[3])
        return [Option((option[1] or option[2]).lower(), tuple(inner) or (Words(plain(option[3])),))]
    letter = _LETTER.match(_untexted(text))
    if letter:
        return [Words(letter[1].lower())]
    text = _CURRENCY.sub("", text)
    quantities = [q for q in (_quantity(variant) for variant in _number_variants(text)) if q]
    found: list[Answer] = [*quantities]
    collection = None if found and not _separable(text) else _collection(text)
    if collection:
        found.append(collection)
    if not found:
        words = plain(text)
        if _WORDS.match(words) and not re.search(r"\\(?!text)", text):
            found.append(Words(words))
    return found


def _untexted(text: str) -> str:
    inner = re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)
    return inner[1].strip() if inner else text


def _separable(text: str) -> bool:
    return "," in text and not _LEADING_ZERO.search(text)


def _number_variants(text: str) -> list[str]:
    """The text with thousands separators taken out, and with a decimal comma as a point; else as it is."""
    joined = _THOUSANDS.sub(lambda m: m[1] + re.sub(r"[,\s]", "", m[2]), text)
    if joined != text:
        return [joined]
    comma = _LONG_DECIMAL_COMMA.match(text) or _DECIMAL_COMMA.match(text)
    return [f"{comma[1]}.{comma[2]}"] if comma else [text]


def _quantity(text: str) -> Quantity | None:
    value = surd.parse(text)
    unit = None
    if value is None:
        core, unit = split_unit(text)
        if core == text:
            return None
        text = _untexted(core)
        text = _THOUSANDS.sub(lambda m: m[1] + re.sub(r"[,\s]", "", m[2]), text)
        value = surd.parse(text)
        if value is None:
            return None
    decimal = _DECIMAL.match(text.replace(" ", ""))
    return Quantity(value, unit, len(decimal[1]) if decimal else None)


def _collection(text: str) -> Collection | None:
    opening = closing = ""
    inner = text
    wrapped = re.fullmatch(r"(\\\{|\{|\(|\[|\]|\\langle)(.*?)(\\\}|\}|\)|\]|\[|\\rangle)", text)
    if wrapped and balanced(wrapped[2].replace("(", "{").replace(")", "}").replace("[", "{").replace("]", "}")):
        opening, inner, closing = wrapped[1].strip("\\") or "{", wrapped[2].strip(), wrapped[3].strip("\\")
    if r"\pm" in inner:
        return _plus_minus(inner, opening, closing)
    parts = split_top(inner, _COMMA)
    if len(parts) == 1 and opening != "{":
        parts = split_top(inner, _COLON)
        opening, closing = ":", ":"
        if len(parts) == 1:
            return None
    items: list[Answer] = []
    for part in parts:
        nested = _readings(part.strip())
        if not nested or (isinstance(nested[0], Words) and not re.fullmatch(r"[a-z]", nested[0].text)):
            return None
        if isinstance(nested[0], Collection) and r"\pm" in part and opening in ("", "{"):
            items.extend(nested[0].items)
        else:
            items.append(nested[0])
    return Collection(opening, closing, tuple(items))


def _plus_minus(text: str, opening: str, closing: str) -> Collection | None:
    """`a \\pm b` as the list of its two values."""
    if text.count(r"\pm") != 1:
        return None if opening not in ("", "{") else _plus_minus_items(text, opening, closing)
    both = [_quantity(text.replace(r"\pm", sign)) for sign in ("+", "-")]
    if opening not in ("", "{") or not all(both):
        return _plus_minus_items(text, opening, closing)
    return Collection(opening, closing, tuple(quantity for quantity in both if quantity))


def _plus_minus_items(text: str, opening: str, closing: str) -> Collection | None:
    parts = split_top(text, _COMMA)
    if len(parts) == 1:
        return None
    items: list[Answer] = []
    for part in parts:
        nested = _readings(part.strip())
        if not nested:
            return None
        items.extend(nested[0].items if isinstance(nested[0], Collection) and r"\pm" in part else [nested[0]])
    return Collection(opening, closing, tuple(items))


def compare(a: Sequence[Answer], b: Sequence[Answer]) -> bool | None:
    """Whether some reading of one equals some reading of the other; None where a side has no reading."""
    if not a or not b:
        return None
    return any(_equal(x, y) for x in a for y in b)


def _equal(a: Answer, b: Answer) -> bool:
    if a.label and b.label and a.label != b.label:
        return False
    if isinstance(a, Option) or isinstance(b, Option):
        return _equal_option(a, b)
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        return _equal_quantity(a, b)
    if isinstance(a, Words) and isinstance(b, Words):
        return a.text == b.text
    if isinstance(a, Collection) and isinstance(b, Collection):
        return _equal_collection(a, b)
    if isinstance(a, Collection) and isinstance(b, Quantity):
        return _equal_single(a, b)
    if isinstance(a, Quantity) and isinstance(b, Collection):
        return _equal_single(b, a)
    return False


def _equal_option(a: Answer, b: Answer) -> bool:
    """A letter with its text equals that letter, that text, and the same letter with the same or another text."""
    if isinstance(a, Option) and isinstance(b, Option):
        return a.letter == b.letter
    option, other = (a, b) if isinstance(a, Option) else (b, a)
    assert isinstance(option, Option)
    if isinstance(other, Words) and len(other.text) == 1:
        return option.letter == other.text
    return any(_equal(reading, other) for reading in option.readings)


def _equal_single(collection: Collection, quantity: Quantity) -> bool:
    """`{5}` is 5, and 7:32 is 7/32."""
    items = collection.items
    if collection.opening == "{" and len(items) == 1:
        return _equal(items[0], quantity)
    if collection.opening == ":" and len(items) == 2 and all(isinstance(item, Quantity) for item in items):
        above, below = (item.value for item in items if isinstance(item, Quantity))
        try:
            return surd.divide(above, below) == quantity.value
        except surd.NotExact:
            return False
    return False


def _equal_collection(a: Collection, b: Collection) -> bool:
    kinds = {a.opening + a.closing, b.opening + b.closing}
    if kinds == {"::"}:
        return _equal_ratio(a, b)
    if kinds <= {"", "{}"}:
        return _equal_unordered(a, b)
    if len(kinds) > 1 and kinds != {"", "()"}:
        return False
    return len(a.items) == len(b.items) and all(map(_equal, a.items, b.items))


def _equal_unordered(a: Collection, b: Collection) -> bool:
    left, right = list(a.items), list(b.items)
    if "{" in (a.opening, b.opening):
        left, right = _distinct(left), _distinct(right)
    if len(left) != len(right):
        return False
    for item in left:
        match = next((other for other in right if _equal(item, other)), None)
        if match is None:
            return False
        right.remove(match)
    return True


def _distinct(items: list[Answer]) -> list[Answer]:
    kept: list[Answer] = []
    for item in items:
        if not any(_equal(item, other) for other in kept):
            kept.append(item)
    return kept


def _equal_ratio(a: Collection, b: Collection) -> bool:
    """2:4 is 1:2. With a zero it may be a time of day: then item by item."""
    left = [item for item in a.items if isinstance(item, Quantity)]
    right = [item for item in b.items if isinstance(item, Quantity)]
    if len(left) != len(a.items) or len(right) != len(b.items) or len(left) != len(right):
        return a.items == b.items
    if all(map(_equal_quantity, left, right)):
        return True
    if not all(item.value.terms for item in (*left, *right)):
        return False
    try:
        scales = {surd.divide(x.value, y.value) for x, y in zip(left, right, strict=True)}
    except surd.NotExact:
        return False
    return len(scales) == 1


def _equal_quantity(a: Quantity, b: Quantity) -> bool:
    if PERCENT in (a.unit, b.unit) and a.unit != b.unit:
        if a.unit is not None and b.unit is not None:
            return False
        part = surd.scale(a.value, PERCENT.factor) if a.unit == PERCENT else a.value
        other = surd.scale(b.value, PERCENT.factor) if b.unit == PERCENT else b.value
        return _equal_value(a.value, b.value, a.places, b.places) or part == other
    if a.unit is None or b.unit is None or a.unit == b.unit:
        return _equal_value(a.value, b.value, a.places, b.places)
    if a.unit.dimension != b.unit.dimension:
        return False
    return surd.scale(a.value, a.unit.factor) == surd.scale(b.value, b.unit.factor)


def _equal_value(a: Surd, b: Surd, a_places: int | None, b_places: int | None) -> bool:
    if a == b:
        return True
    return rounds_to(b.decimal(), a.decimal(), a_places) or rounds_to(a.decimal(), b.decimal(), b_places)


def rounds_to(value: Decimal, written: Decimal, places: int | None) -> bool:
    """Whether a value, rounded or truncated to the places with which a decimal was written, is that decimal. Short
    decimals stand for themselves alone: 8.67 is not 26/3."""
    if places is None or places < MIN_PLACES or written == 0:
        return False
    places = min(places, MAX_PLACES)
    step = Decimal(1).scaleb(-places)
    if abs(written) < step * 10 ** (MIN_DIGITS - 1):
        return False
    difference = value - written
    truncated = (difference >= 0) == (written > 0) and abs(difference) < step and value * written > 0
    return abs(difference) <= step / 2 or truncated
