"""The files of metrics: one JSON object a line, appended to and never rewritten but to cut a resumed run back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastrl_cli.errors import DataError
from fastrl_cli.reporting.jsonable import dump_line, flatten, nest
from fastrl_cli.reporting.metrics import Metrics, validate


class MetricsFile:
    """Writes lines that survive a kill: each is on the disk before `append` returns."""

    def __init__(self, path: Path, *, resume_at: int | None = None) -> None:
        """Open `path` for appending. `resume_at` keeps the lines of steps up to and including it, and drops what comes
        after them, a torn last line among it. None begins an empty file."""
        kept = [] if resume_at is None else [line for line in _read_lines(path) if line["step"] <= resume_at]
        beside = path.with_name(path.name + ".tmp")
        beside.write_text("".join(dump_line(line) for line in kept), encoding="utf-8")
        os.replace(beside, path)
        self._file = path.open("a", encoding="utf-8")
        self.last_step: float | None = kept[-1]["step"] if kept else None
        """Step of the last line."""

    def append(self, metrics: Metrics) -> None:
        """Write one line. Raises `KeyError` for a name outside the table of metrics, and for a missing `step`.
        Non-finite numbers become null."""
        if "step" not in metrics:
            raise KeyError("step")
        validate(metrics)
        self._file.write(dump_line(nest(metrics)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.last_step = metrics["step"]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines of a file of metrics under their flat names, oldest first; nothing where the file is missing.
    A torn last line is left out, and so are numbers that were not finite."""
    lines = (flatten(line) for line in _read_lines(path))
    return [{name: value for name, value in line.items() if value is not None} for line in lines]


def _read_lines(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_parse(path, number, line) for number, line in enumerate(whole.split(b"\n"), start=1) if line.strip()]


def _parse(path: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError) as error:
        message = f"{path} line {number} is not a JSON object: {error}. Remove the line to go on without it."
        raise DataError(message) from error
