"""A question set: rows of a table that become samples when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.data.marks import with_marks
from fastrl_cli.data.presets import Preset, bare_answer
from fastrl_cli.data.sample import EncodedImage, Sample
from fastrl_cli.data.sources import Table

Questions: TypeAlias = Sequence[Sample]


def cell_text(value: Any) -> str:
    """The text of a cell; empty for a null."""
    return "" if value is None else str(value)


def gold_text(value: Any) -> str:
    """The bare answer of a cell; empty for a null."""
    return bare_answer(cell_text(value))


def read_pictures(value: Any, folder: Path | None) -> tuple[EncodedImage, ...]:
    """The pictures of a cell, still encoded: null, a path, bytes, a `{bytes, path}` or a list of these. A file that
    cannot be read gives an empty picture, which its prompt refuses."""
    match value:
        case None | "":
            return ()
        case bytes():
            return (EncodedImage(value),)
        case str():
            return (_read_file(value, folder),)
        case {"bytes": bytes(data), "path": str() | None as path}:
            return (EncodedImage(data, path),)
        case {"path": path}:
            return read_pictures(path, folder)
        case list() | tuple():
            return tuple(picture for item in value for picture in read_pictures(item, folder))
    return (EncodedImage(b"", f"a value of type {type(value).__name__}"),)


def _read_file(path: str, folder: Path | None) -> EncodedImage:
    try:
        data = ((folder or Path()) / path).read_bytes()
    except (OSError, ValueError):
        data = b""
    return EncodedImage(data, path)


class Rows:
    """The rows of a table as plain values. Pictures are never decoded."""

    def __init__(self, table: Table) -> None:
        import datasets

        self._arrow = table.dataset.with_format("arrow")
        features = table.dataset.features
        self.columns: list[str] = list(features)
        self.pictures: list[str] = [name for name, feature in features.items() if _holds_media(feature)]
        self._plain = datasets.Features({name: features[name] for name in features if name not in self.pictures})

    def __len__(self) -> int:
        return len(self._arrow)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self._values(self._arrow[row].to_pylist()[0])

    def column(self, name: str) -> Iterator[Any]:
        """The values of one column in order; nothing else is read."""
        for batch in self._arrow.select_columns([name]).iter(batch_size=1000):
            yield from (self._values(cells)[name] for cells in batch.to_pylist())

    def _values(self, cells: dict[str, Any]) -> dict[str, Any]:
        plain = {name: value for name, value in cells.items() if name not in self.pictures}
        decoded: dict[str, Any] = self._plain.decode_example(plain)
        return cells | decoded


def _holds_media(feature: Any) -> bool:
    import datasets

    if isinstance(feature, Mapping):
        return set(feature) == {"bytes", "path"}
    if isinstance(feature, list):
        return _holds_media(feature[0])
    if (inner := getattr(feature, "feature", None)) is not None:
        return _holds_media(inner)
    return isinstance(feature, datasets.Image | datasets.Audio | datasets.Video)


class TableQuestions(Sequence[Sample]):
    """Some rows of a table. A sample and its encoded pictures are made anew each time it is asked for."""

    def __init__(self, rows: Rows, table: Table, preset: Preset, kept: NDArray[np.int64]) -> None:
        self._rows = rows
        self._table = table
        self._preset = preset
        self._kept = kept
        self._left_out = {*rows.pictures, preset.images}

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> TableQuestions: ...
    def __getitem__(self, index: int | slice) -> Sample | TableQuestions:
        if isinstance(index, slice):
            return TableQuestions(self._rows, self._table, self._preset, self._kept[index])
        row = int(self._kept[index])
        cells = self._rows[row]
        preset = self._preset
        images = read_pictures(cells[preset.images], self._table.folder) if preset.images else ()
        columns = {name: value for name, value in cells.items() if name not in self._left_out}
        return Sample(
            id=f"{self._table.source}:{row}",
            source=self._table.source,
            row=row,
            question=with_marks(preset.compose(columns, cell_text(cells[preset.question])), len(images)),
            answer=gold_text(cells[preset.answer]),
            images=images,
            columns=columns,
        )
