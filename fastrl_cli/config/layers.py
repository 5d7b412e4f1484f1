"""The layers that a configuration is merged from, each with the place where every value was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fastrl_cli.config.presets import ALGORITHMS
from fastrl_cli.errors import UsageError

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Layer:
    """Values as nested mappings. `origins` says where a dotted name was written: a file's line, an option."""

    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)

    def without(self, section: str) -> Layer:
        """The layer without one of its sections."""
        return Layer({name: value for name, value in self.values.items() if name != section}, self.origins)


def from_values(values: Mapping[str, Any], origin: str) -> Layer:
    """A layer whose values were all written in one place, such as a preset."""
    return Layer(values, {path: origin for path in _leaves(values)})


def from_flag(name: str, value: object, option: str) -> Layer:
    """One dotted name set by an option of the command line."""
    return Layer(_nested(name, value), {name: f"from `{option}`"})


def from_override(text: str) -> Layer:
    """A positional override, the value in YAML: `optimizer.learning_rate=1e-5`, `algorithm.dual_clip=null`.

    Raises `UsageError` where it is not one.
    """
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        advice = f" To read it as a configuration file, write `--config {text}`." if Path(text).is_file() else ""
        raise UsageError(f"`{text}` is not an override: write `name=value`, for example `batch.rollouts=8`.{advice}")
    if not value.strip():
        raise UsageError(f"`{text}` has no value after the equals sign. For no value write `{name}=null`.")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"the value of `{text}` is not YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise UsageError(f"the value of `{name}` is nested too deeply to be read.") from error
    return Layer(_nested(name, parsed), {name: f"from `{text}`"})


def from_file(path: Path) -> Layer:
    """A YAML file. Raises `UsageError`, with the line where there is one, for a file that is missing, unreadable,
    empty, not YAML, not a mapping at its top, or that sets a name twice."""
    text = _read(path)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines = dict(_lines(node, path)) if isinstance(node, yaml.MappingNode) else {}
        values = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise UsageError(f"configuration file {path} is not YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise UsageError(f"configuration file {path} refers to itself, or is nested too deeply to be read.") from error
    if values is None:
        raise UsageError(
            f"configuration file {path} is empty. Write a setting into it, or leave `--config {path}` out."
        )
    if not isinstance(values, dict):
        raise UsageError(
            f"configuration file {path} holds a {type(values).__name__}, not names with values. "
            "Write for example `batch: {rollouts: 8}`."
        )
    return Layer(values, {name: f"{path} line {line}" for name, line in lines.items()})


def merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """`layer` over `base`, section by section. A section that names another `type`, or an algorithm that names another
    `name`, does not inherit the fields of the one before: it starts from its own defaults, or from its preset."""
    merged = dict(base)
    for name, value in layer.items():
        before = merged.get(name)
        if not (isinstance(value, Mapping) and isinstance(before, Mapping)):
            merged[name] = value
        elif name == "algorithm" and value.get("name", before.get("name")) != before.get("name"):
            merged[name] = merge(ALGORITHMS.get(str(value["name"]), before), value)
        elif value.get("type", before.get("type")) != before.get("type"):
            merged[name] = dict(value)
        else:
            merged[name] = merge(before, value)
    return merged


def _nested(name: str, value: object) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"configuration file {path} does not exist.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"configuration file {path} cannot be read: {error}") from error


def _lines(node: yaml.MappingNode, path: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """The line of every name, counted from 1. Raises `UsageError` for a name that stands twice or is not text."""
    seen: set[str] = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
            raise UsageError(f"{path} line {line}: `{key.value}` is not a name. Put quotes around it if it is one.")
        if key.value in seen:
            raise UsageError(f"{path} line {line}: `{prefix}{key.value}` is set a second time. Keep one of the two.")
        seen.add(key.value)
        yield prefix + key.value, line
        if isinstance(value, yaml.MappingNode):
            yield from _lines(value, path, f"{prefix}{key.value}.")


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."
    return f"{error}."
