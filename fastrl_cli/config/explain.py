"""What pydantic found wrong, as sentences: the field, its value, where it was written, the rule, a valid example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fastrl_cli.config.schema import children, field_places, find_field, sections_of
from fastrl_cli.config.suggest import unknown_key

EXAMPLES: Mapping[str, object] = {
    "engine.run": "runs/grpo-1",
    "algorithm.overlong_penalty.max_length": 2048,
    "algorithm.overlong_penalty.cache": 512,
}
"""Values for the fields that have no default to show."""

_SECTION_ERRORS = ("model_type", "model_attributes_type", "dict_type")
_WORDING = (
    ("Input should be", "must be"),
    ("Value error, ", ""),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("a valid boolean", "true or false"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
    ("a valid string", "text"),
)


def explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One paragraph for each thing that is wrong with the merged `values`."""
    found = [sentence for detail in error.errors() for sentence in _sentences(detail, values, origins)]
    return "\n".join(dict.fromkeys(found))


def wrong_value(path: str, value: object, rule: str, *, origin: str | None = None, variant: str | None = None) -> str:
    """The paragraph about a value that breaks a rule, with the field's own words and a valid example."""
    info = find_field(path, variant)
    lines = [f"{path} is {shown(value)}{f' ({origin})' if origin else ''}: {rule}."]
    if info is not None and info.description:
        lines.append(f"  {' '.join(info.description.split())}")
    lines.append(f"  For example: {example(path, info)}")
    return "\n".join(lines)


def example(path: str, info: FieldInfo | None) -> str:
    """A valid override of a field."""
    if path in EXAMPLES:
        return f"{path}={shown(EXAMPLES[path])}"
    if info is None:
        return f"{path}=null"
    if sections_of(info.annotation) and info.default is not None:
        first = children(path)[0]
        return example(first, find_field(first))
    value = info.default
    if value is None and get_origin(info.annotation) is Literal:
        value = get_args(info.annotation)[0]
    return f"{path}={shown(value)}"


def shown(value: object) -> str:
    """A value as YAML on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()


def _sentences(detail: ErrorDetails, values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    path, variant, items = _place(detail["loc"], values)
    kind = detail["type"]
    if kind == "extra_forbidden":
        for leaf in _leaves(path, detail["input"]):
            yield _unknown(leaf, variant, _origin(leaf, origins))
    elif kind == "missing" and not items:
        yield f"{path} is missing. For example: {example(path, find_field(path, variant))}"
    elif kind == "union_tag_invalid":
        tags = detail["ctx"]["expected_tags"]
        path = f"{path}.type"
        yield wrong_value(path, detail["ctx"]["tag"], f"must be one of {tags}", origin=_origin(path, origins))
    elif kind in _SECTION_ERRORS:
        rule = f"{path} is a section, and takes names with values"
        yield wrong_value(path, detail["input"], rule, origin=_origin(path, origins))
    else:
        rule = "".join(f"item {item + 1} " for item in items) + _rule(detail)
        yield wrong_value(path, _value(path, values), rule, origin=_origin(path, origins), variant=variant)


def _place(loc: tuple[int | str, ...], values: Mapping[str, Any]) -> tuple[str, str | None, list[int]]:
    """The dotted name of a location, the `type` of its section, and the indices where it lies inside a list. pydantic
    puts a section's type among the names."""
    names: list[str] = []
    variant, here = None, values
    for part in loc:
        if isinstance(part, int):
            continue
        if isinstance(here, Mapping) and part == here.get("type") and part not in here:
            variant = part
            continue
        names.append(part)
        here = here.get(part, {}) if isinstance(here, Mapping) else {}
        variant = None if isinstance(here, Mapping) and here else variant
    return ".".join(names), variant, [part for part in loc if isinstance(part, int)]


def _rule(detail: ErrorDetails) -> str:
    rule = "is missing" if detail["type"] == "missing" else detail["msg"].partition(", unable")[0]
    for words, better in _WORDING:
        rule = rule.replace(words, better)
    return rule


def _unknown(path: str, variant: str | None, origin: str | None) -> str:
    places = [place for place in field_places() if place.path == path]
    file_line = f"{origin}: " if origin and not origin.startswith("from ") else ""
    if not places:
        return file_line + unknown_key(path)
    section = path.rpartition(".")[0]
    types = " or ".join(str(place.variant) for place in places)
    return f"{file_line}`{path}` exists only where {section}.type is {types}; here it is {variant}."


def _leaves(path: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield path
        return
    for name, inner in value.items():
        yield from _leaves(f"{path}.{name}", inner)


def _value(path: str, values: Mapping[str, Any]) -> object:
    here: Any = values
    for name in path.split("."):
        here = here[name]
    return here


def _origin(path: str, origins: Mapping[str, str]) -> str | None:
    """Where the name was written, or the section around it."""
    while path and path not in origins:
        path = path.rpartition(".")[0]
    return origins.get(path)
