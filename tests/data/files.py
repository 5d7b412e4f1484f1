"""Small data sets on disk, as a person would have them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image


def png(width: int = 60, height: int = 40, colour: str = "red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]], *, hub_types: bool = True) -> Path:
    """Rows whose `image` or `images` hold bytes. `hub_types` adds the feature types that a hub data set carries."""
    import datasets

    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [{name: _cell(name, value) for name, value in row.items()} for row in rows]
    table = datasets.Dataset.from_list(cells)
    if hub_types:
        for name in table.column_names:
            if name == "image":
                table = table.cast_column(name, datasets.Image())
            if name == "images":
                table = table.cast_column(name, datasets.List(datasets.Image()))
    table.to_parquet(str(path))
    return path


def _cell(name: str, value: Any) -> Any:
    if name == "images" and value is not None:
        return [_cell("image", item) for item in value]
    return {"bytes": value, "path": None} if isinstance(value, bytes) else value
