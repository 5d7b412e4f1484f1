"""Values as JSON knows them: no NaN, no infinity, names with slashes as nested objects."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any


def sanitize(value: Any) -> Any:
    """The same value with every non-finite number as None, numpy's numbers as Python's, mappings as dicts, tuples as
    lists, bytes in base64, and what else JSON does not know (dates, decimals) as its text."""
    if isinstance(value, Mapping):
        return {str(key): sanitize(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [sanitize(item) for item in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def dump_line(document: Mapping[str, Any]) -> str:
    """One line of JSON, with its line end."""
    return json.dumps(sanitize(document), ensure_ascii=False, allow_nan=False) + "\n"


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a/b": 1}` as `{"a": {"b": 1}}`."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = value
    return tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; the inverse of `nest`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = value
    return flat
