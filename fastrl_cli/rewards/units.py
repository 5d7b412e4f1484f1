"""Units at the end of an answer: split off, and converted where both sides carry one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from fastrl_cli.rewards.text import plain


@dataclass(frozen=True)
class Unit:
    """What a number counts. Units of one dimension convert by their factors; others never equal each other."""

    dimension: str
    factor: Fraction = Fraction(1)


PERCENT = Unit("percent", Fraction(1, 100))

_LENGTHS: dict[str, tuple[str, ...]] = {
    "1/1000": ("mm", "millimeter", "millimeters", "millimetre", "millimetres", "毫米"),
    "1/100": ("cm", "centimeter", "centimeters", "centimetre", "centimetres", "厘米"),
    "1/10": ("dm", "decimeter", "decimeters", "decimetre", "decimetres", "分米"),
    "1": ("m", "meter", "meters", "metre", "metres", "米"),
    "1000": ("km", "kilometer", "kilometers", "kilometre", "kilometres", "千米", "公里"),
    "127/5000": ("in", "inch", "inches", "英寸"),
    "381/1250": ("ft", "foot", "feet", "英尺"),
    "1143/1250": ("yd", "yds", "yard", "yards"),
    "201168/125": ("mi", "mile", "miles"),
}
_OTHERS: dict[str, dict[str, tuple[str, ...]]] = {
    "prime": {"1": ("'",), "2": ('"', "''")},
    "angle": {"1": ("°", "deg", "degs", "degree", "degrees", "度")},
    "radian": {"1": ("rad", "rads", "radian", "radians", "弧度")},
    "celsius": {"1": ("°c", "° c", "℃", "degrees celsius", "摄氏度")},
    "fahrenheit": {"1": ("°f", "° f", "degrees fahrenheit")},
    "time": {
        "1": ("s", "sec", "secs", "second", "seconds", "秒"),
        "60": ("min", "mins", "minute", "minutes", "分钟", "分"),
        "3600": ("h", "hr", "hrs", "hour", "hours", "小时", "时"),
        "86400": ("day", "days", "天"),
    },
    "mass": {
        "1/1000": ("mg",),
        "1": ("g", "gram", "grams", "克"),
        "1000": ("kg", "kilogram", "kilograms", "千克", "公斤"),
        "1000000": ("t", "ton", "tons", "tonne", "tonnes", "吨"),
    },
    "length3": {
        "1/1000000": ("ml", "milliliter", "milliliters", "毫升"),
        "1/1000": ("l", "liter", "liters", "litre", "litres", "升"),
    },
    "speed": {
        "1": ("m/s", "米/秒", "meters per second", "metres per second"),
        "5/18": ("km/h", "kmh", "kph", "千米/时", "千米/小时", "kilometers per hour", "km per hour"),
        "1397/3125": ("mph", "miles per hour"),
    },
    "money": {"1": ("dollar", "dollars", "usd", "元", "yuan", "euro", "euros", "€")},
}
_GENERIC = ("unit", "units", "square unit", "square units", "sq unit", "sq units", "sq. units", "unit^2", "units^2")
_GENERIC_3 = ("cubic unit", "cubic units", "unit^3", "units^3", "单位", "平方单位", "个")

_SQUARES = ("{}^2", "square {}", "sq {}", "sq. {}", "{} squared", "平方{}")
_CUBES = ("{}^3", "cubic {}", "cu {}", "cu. {}", "{} cubed", "立方{}")


def _table() -> dict[str, Unit | None]:
    table: dict[str, Unit | None] = dict.fromkeys((*_GENERIC, *_GENERIC_3))
    table["%"] = PERCENT
    for dimension, by_factor in _OTHERS.items():
        for factor, names in by_factor.items():
            table.update(dict.fromkeys(names, Unit(dimension, Fraction(factor))))
    for factor, names in _LENGTHS.items():
        for name in names:
            one = Fraction(factor)
            table[name] = Unit("length", one)
            for pattern in _SQUARES:
                table[pattern.format(name)] = Unit("length2", one**2)
            for pattern in _CUBES:
                table[pattern.format(name)] = Unit("length3", one**3)
    return table


_TABLE = _table()
_TOKEN = re.compile(r"\\text\s*\{[^{}]*\}|[A-Za-z.]+|[\u4e00-\u9fff℃€]+|°|%|/|'+|\"|\^\s*\{?\s*[23]\s*\}?|\s+")
_SPACED_LETTERS = frozenset("gshtl")
"""Letters that are variables more often than units when they touch the number."""
_TEXT_LABEL = re.compile(r"^\\text\s*\{[^{}]*\}$")
_MINUTES = re.compile(r"^(-?\d+)\s*°\s*(\d{1,2})\s*'\s*(?:(\d{1,2})\s*(?:\"|''))?$")


def _tail(text: str) -> list[str]:
    """Tokens at the end of the text that could belong to a unit."""
    run: list[str] = []
    position = end = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        escaped = position > 0 and text[position - 1] == "\\"
        if found and found.end() > position and not escaped:
            if end != position:
                run = []
            run.append(found[0])
            position = end = found.end()
        else:
            position += 1
            while escaped and position < len(text) and text[position].isalpha():
                position += 1
    return run if end == len(text) else []


def _name(tokens: list[str]) -> str:
    text = re.sub(r"\^\s*\{?\s*([23])\s*\}?", r"^\1", "".join(tokens))
    if text.strip("'\"") == "":
        return text
    text = re.sub(r"\s*\^", "^", re.sub(r"\s*/\s*", "/", plain(text)))
    return text.removesuffix(".")


def split_unit(text: str) -> tuple[str, Unit | None]:
    """(the cleaned text before the unit, the unit). Words in `\\text{}` that name no known unit count as one of their
    own. No unit, and `units`, are None."""
    minutes = _MINUTES.match(text)
    if minutes:
        value = abs(int(minutes[1])) + Fraction(int(minutes[2]), 60) + Fraction(int(minutes[3] or 0), 3600)
        return f"{'-' if minutes[1].startswith('-') else ''}({value})", _TABLE["°"]
    tokens = _tail(text)
    for start in range(len(tokens)):
        rest = tokens[start:]
        if rest[0].isspace():
            continue
        core = text[: len(text) - sum(map(len, rest))]
        name = _name(rest)
        if not core.strip() or core.endswith("\\"):
            continue
        if name in _TABLE and not (name in _SPACED_LETTERS and core[-1] != " " and rest[0][0] != "\\"):
            return core.strip(), _TABLE[name]
        if len(rest) == 1 and _TEXT_LABEL.match(rest[0]) and not re.search(r"[=:,]\s*$|\d\s*(?:and|or)", core):
            return core.strip(), Unit(f"label {name}") if name else None
    return text, None
