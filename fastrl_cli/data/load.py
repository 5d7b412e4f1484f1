"""Reads the questions of a run, says what it found, and leaves out what has no answer to grade against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fastrl_cli.config.data import BuiltinProblemsConfig, DataConfig
from fastrl_cli.data.presets import FIELDS, Preset, find_preset
from fastrl_cli.data.questions import Questions, Rows, TableQuestions, cell_text, gold_text
from fastrl_cli.data.sources import Source, canonical, open_source
from fastrl_cli.errors import DataError

BUILTIN = "builtin"
NOT_TEXT = "a list or mapping where text or a number is expected"
SHOWN = 10
"""Rows that a report lists one by one."""


@dataclass(frozen=True)
class LeftOut:
    """A row that cannot be used: its question is missing, or its gold answer cannot be graded against."""

    row: int
    what: str
    """`question` or `answer`."""
    value: object
    reason: str

    def __str__(self) -> str:
        return f"row {self.row}: {self.what} {str(self.value)[:80]!r}: {self.reason}"


@dataclass(frozen=True)
class SplitReport:
    """What became of one split."""

    source: str
    preset: str
    columns: Mapping[str, str]
    """Field to column, for the fields there are."""
    rows: int
    kept: int
    left_out: tuple[LeftOut, ...] = ()
    note: str | None = None

    def lines(self) -> list[str]:
        """The report for a person, a line each."""
        mapping = ", ".join(f"{name} from {column!r}" for name, column in self.columns.items())
        how = f"{self.preset}: {mapping}" if mapping else self.preset
        lines = [f"{self.source}: {self.kept} of {self.rows} questions ({how})"]
        lines += [f"  {self.source}: {self.note}"] * bool(self.note)
        lines += [f"  left out {item}" for item in self.left_out[:SHOWN]]
        if len(self.left_out) > SHOWN:
            lines.append(f"  left out {len(self.left_out) - SHOWN} more rows")
        return lines


@dataclass(frozen=True)
class LoadReport:
    train: SplitReport
    validation: SplitReport | None

    def __iter__(self) -> Iterator[str]:
        """The lines of both splits, for a person."""
        yield from self.train.lines()
        if self.validation is None:
            yield (
                "no validation split, so accuracy before and after is not measured: name one with "
                "data.validation_split=NAME, or give a folder with files named train and validation"
            )
        else:
            yield from self.validation.lines()


@dataclass(frozen=True)
class QuestionSets:
    """The questions of a run. `validation` is None where the data set has no such split."""

    train: Questions
    validation: Questions | None
    report: LoadReport


def load_questions(config: DataConfig, builtin: BuiltinProblemsConfig, seed: int) -> QuestionSets:
    """The training and validation questions of `config`; `seed` draws the built-in ones.

    Raises DataError where the data cannot be found or read, a split or column is missing, or no answer parses.
    """
    if config.path == BUILTIN:
        sizes = {"train": config.limit, "validation": config.validation_limit}
        (train, train_report), (validation, report) = (
            _drawn(split, builtin, seed, limit) for split, limit in sizes.items()
        )
        return QuestionSets(train, validation, LoadReport(train_report, report))
    source = open_source(config)
    train, train_report = _read(source, config.train_split, config, config.limit)
    if canonical(config.validation_split) not in map(canonical, source.splits):
        return QuestionSets(train, None, LoadReport(train_report, None))
    validation, report = _read(source, config.validation_split, config, config.validation_limit)
    return QuestionSets(train, validation, LoadReport(train_report, report))


def load_split(
    config: DataConfig, builtin: BuiltinProblemsConfig, seed: int, split: str, limit: int | None = None
) -> tuple[Questions, SplitReport]:
    """The first `limit` questions of one split, whatever its name. Raises as `load_questions` does."""
    if config.path == BUILTIN:
        return _drawn(split, builtin, seed, limit)
    return _read(open_source(config), split, config, limit)


def _drawn(split: str, builtin: BuiltinProblemsConfig, seed: int, limit: int | None) -> tuple[Questions, SplitReport]:
    from fastrl_cli.data.builtin import builtin_samples

    match split:
        case "train":
            count = builtin.train_size
        case "validation":
            count = builtin.validation_size
        case _:
            raise DataError(f"builtin: there is no split {split!r}. The splits are train, validation.")
    count = min(count, limit or count)
    samples = builtin_samples(split, count, builtin.picture_size, seed)
    return samples, SplitReport(f"builtin/{split}", "drawn problems", {}, count, count)


def _read(source: Source, split: str, config: DataConfig, limit: int | None) -> tuple[Questions, SplitReport]:
    table = source.read(_find_split(source, split))
    rows = Rows(table)
    if len(rows) == 0:
        raise DataError(f"{table.source} is empty: it has no rows. Give another data.path.")
    preset = find_preset(rows.columns, config.columns, rows[0], rows.pictures, table.source)
    count = min(len(rows), limit or len(rows))
    left_out = _unusable(rows, preset, count)
    if len(left_out) == count:
        raise DataError(
            f"{table.source}: none of its {count} rows can be used. First: {left_out[0]}. "
            f"Questions come from column {preset.question!r} and answers from {preset.answer!r}; "
            "data.columns.question=NAME and data.columns.answer=NAME choose others."
        )
    kept = np.setdiff1d(np.arange(count), [item.row for item in left_out]).astype(np.int64)
    columns = {name: column for name in FIELDS if (column := getattr(preset, name)) is not None}
    report = SplitReport(table.source, preset.name, columns, count, len(kept), left_out, preset.note)
    return TableQuestions(rows, table, preset, kept), report


def _find_split(source: Source, split: str) -> str:
    if split in source.splits:
        return split
    for there in source.splits:
        if canonical(there) == canonical(split):
            return there
    raise DataError(
        f"{source.where}: there is no split {split!r}. The splits are {', '.join(source.splits)}. "
        "data.train_split=NAME chooses the one to train on."
    )


def _unusable(rows: Rows, preset: Preset, count: int) -> tuple[LeftOut, ...]:
    """The rows among the first `count` without a question, without an answer, or with one that the grader cannot
    parse."""
    from fastrl_cli.rewards import gold_problems

    answers = list(islice(rows.column(preset.answer), count))
    distinct = list(dict.fromkeys(gold_text(value) for value in answers))
    problems = dict(zip(distinct, gold_problems(distinct), strict=True))
    left_out = []
    for row, (question, answer) in enumerate(zip(rows.column(preset.question), answers, strict=False)):
        if isinstance(question, (list, Mapping)):
            left_out.append(LeftOut(row, "question", question, NOT_TEXT))
        elif not cell_text(question).strip() and not _has_picture(rows, preset, row):
            left_out.append(LeftOut(row, "question", question, "there is neither text nor a picture"))
        elif isinstance(answer, (list, Mapping)):
            left_out.append(LeftOut(row, "answer", answer, NOT_TEXT))
        elif (problem := problems[gold_text(answer)]) is not None:
            left_out.append(LeftOut(row, "answer", gold_text(answer), problem))
    return tuple(left_out)


def _has_picture(rows: Rows, preset: Preset, row: int) -> bool:
    return preset.images is not None and bool(rows[row][preset.images])
