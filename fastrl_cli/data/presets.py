"""Which column of a data set holds the question, the answer and the pictures, and how a bare answer is got out of it.

A preset is found by the columns that a data set has; `data.columns` overrides its names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from fastrl_cli.config.data import ColumnsConfig
from fastrl_cli.data.marks import IMAGE_MARK
from fastrl_cli.errors import DataError
from fastrl_cli.rewards.extract import boxed_groups

Row: TypeAlias = Mapping[str, Any]
FIELDS = ("question", "answer", "images")
EVALUATION_ONLY = "its authors ask that it be used for evaluation only, never for training"


def bare_answer(text: str) -> str:
    """The answer out of the wrapping of GEOQA_R1V (`<answer> 145° </answer>`), the last box of a solution of MATH,
    or from behind the `####` of GSM8K, less its thousands commas."""
    if wrapped := re.fullmatch(r"\s*<answer>(.*?)</answer>\s*", text, re.DOTALL):
        return wrapped[1].strip()
    if boxes := boxed_groups(text):
        return boxes[-1].content.strip()
    _, hashes, last = text.rpartition("####")
    last = last.strip()
    return last.replace(",", "") if hashes and re.fullmatch(r"[-\d.,]+", last) else last


def lettered(choices: Sequence[Any]) -> str:
    """The choices on a line each, `(A) ..`, as the MathVista query has them."""
    return "".join(f"\n({chr(ord('A') + place)}) {choice}" for place, choice in enumerate(choices))


def plain_question(row: Row, text: str) -> str:
    return text


def mathvista_question(row: Row, text: str) -> str:
    unit = f" (Unit: {row['unit']})" if row.get("unit") else ""
    choices = f"\nChoices:{lettered(row['choices'])}" if row.get("choices") else ""
    return text + unit + choices


def mathvision_question(row: Row, text: str) -> str:
    """MathVision numbers its marks, and has one composite picture a row: the first mark is where it stands."""
    text = re.sub(r"<image\d+>", IMAGE_MARK, text, count=1)
    options = row.get("options") or []
    in_the_picture = all(option == chr(ord("A") + place) for place, option in enumerate(options))
    return text if in_the_picture else f"{text}\nChoices:{lettered(options)}"


def wemath_question(row: Row, text: str) -> str:
    choices = [choice.strip() for choice in (row.get("option") or "").split(";")]
    return "\n".join([text, *filter(None, choices)])


@dataclass(frozen=True)
class Preset:
    """The columns of one kind of data set. `images` is None where it has no pictures."""

    name: str
    question: str
    answer: str
    images: str | None = None
    others: frozenset[str] = frozenset()
    """Further columns by which it is told from the rest."""
    compose: Callable[[Row, str], str] = field(default=plain_question, repr=False)
    note: str | None = None

    def fits(self, columns: Sequence[str], config: ColumnsConfig) -> bool:
        own = {name for name in FIELDS if getattr(config, name) is None}
        needed = {getattr(self, name) for name in own} - {None}
        return bool(needed) and (needed | self.others) <= set(columns)


PRESETS = (
    Preset("mathvista", "question", "answer", "decoded_image", frozenset({"pid", "choices"}), mathvista_question,
           EVALUATION_ONLY),
    Preset("mathverse", "question", "answer", "image", frozenset({"problem_version"})),
    Preset("mathvision", "question", "answer", "decoded_image", frozenset({"options", "level"}), mathvision_question,
           EVALUATION_ONLY),
    Preset("wemath", "question", "answer", "image_path", frozenset({"option"}), wemath_question,
           "its licence allows non-commercial use only"),
    Preset("geometry3k", "problem", "answer", "images"),
    Preset("geoqa_r1v", "problem", "solution", "image"),
)  # fmt: skip
GENERIC = {
    "question": ("question", "problem"),
    "answer": ("answer", "ground_truth", "solution"),
    "images": ("images", "image", "image_path", "file_name", "file_names"),
}
GSM8K = {"question", "answer"}
MATH = {"problem", "solution"}


def find_preset(
    columns: Sequence[str], config: ColumnsConfig, first_row: Row, pictures: Sequence[str], where: str
) -> Preset:
    """The preset that fits `columns`, with the names that `config` overrides.

    `pictures` are the columns whose type holds pictures; one of them is used where no name tells, so that a data set
    with pictures is never trained on without them. Raises DataError when a column is missing or the choice is unclear.
    """
    overrides = {name: getattr(config, name) for name in FIELDS if getattr(config, name) is not None}
    for name, column in overrides.items():
        if column not in columns:
            raise _missing(name, column, columns, where)
    for preset in PRESETS:
        if preset.fits(columns, config):
            return replace(preset, **overrides)
    return _generic(columns, overrides, first_row, pictures, where)


def _generic(
    columns: Sequence[str], overrides: Mapping[str, str], first_row: Row, pictures: Sequence[str], where: str
) -> Preset:
    names = {name: next((column for column in GENERIC[name] if column in columns), None) for name in GENERIC}
    names["images"] = _picture_column(columns, pictures)
    names |= overrides
    question, answer, images = (names[name] for name in FIELDS)
    if question is None:
        raise _missing("question", None, columns, where)
    if answer is None:
        raise _missing("answer", None, columns, where)
    if images is None and len(pictures) > 1:
        raise DataError(
            f"{where}: several columns hold pictures ({', '.join(pictures)}). Choose one: data.columns.images=NAME."
        )
    return Preset(_name(columns, answer, images, first_row), question, answer, images)


def _picture_column(columns: Sequence[str], pictures: Sequence[str]) -> str | None:
    """A column of pictures by its type, else one that may hold their paths by its name."""
    if len(pictures) == 1:
        return pictures[0]
    return next((column for column in GENERIC["images"] if column in (pictures or columns)), None)


def _name(columns: Sequence[str], answer: str, images: str | None, first_row: Row) -> str:
    if set(columns) == GSM8K and "####" in str(first_row.get(answer)):
        return "gsm8k"
    return "math" if images is None and set(columns) >= MATH else "generic"


def _missing(name: str, column: str | None, columns: Sequence[str], where: str) -> DataError:
    what = f"data.columns.{name}: there is no column {column!r}" if column else f"no column is known to hold the {name}"
    close = difflib.get_close_matches(column or name, columns, 1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Name one: data.columns.{name}=NAME."
    return DataError(f"{where}: {what}. The columns are {', '.join(map(repr, columns))}. {hint}")
