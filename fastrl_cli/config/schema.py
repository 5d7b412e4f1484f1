"""The names of all fields of the configuration, read off its classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fastrl_cli.config.base import Section
from fastrl_cli.config.run import RunConfig


@dataclass(frozen=True)
class FieldPlace:
    """A field of one class of the configuration."""

    path: str
    """Dotted: `pruning.tau`."""
    info: FieldInfo
    variant: str | None
    """The `type` of the section it belongs to, where the section has several types."""


def sections_of(annotation: Any) -> dict[str | None, type[Section]]:
    """The section classes that a field can hold, by their `type`; the key None where there is only one class. Empty for
    a field that holds a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {_type_of(annotation): annotation}
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return {tag: one for part in get_args(annotation) for tag, one in sections_of(part).items()}
    return {}


@cache
def field_places() -> tuple[FieldPlace, ...]:
    """Every field of `RunConfig`, sections and all variants included, in the order of their definition."""
    return tuple(_walk(RunConfig, "", None))


@cache
def field_paths() -> tuple[str, ...]:
    """The dotted names of `field_places`, each once."""
    return tuple(dict.fromkeys(place.path for place in field_places()))


def find_field(path: str, variant: str | None = None) -> FieldInfo | None:
    """The field of a dotted name, of the given variant where the section has several."""
    places = [place for place in field_places() if place.path == path]
    exact = [place for place in places if place.variant == variant]
    return (exact or places)[0].info if places else None


def children(section: str) -> tuple[str, ...]:
    """The dotted names right under a section; the empty name is the whole configuration."""
    prefix = f"{section}." if section else ""
    return tuple(path for path in field_paths() if path.startswith(prefix) and "." not in path[len(prefix) :])


def _walk(section: type[Section], prefix: str, variant: str | None) -> Iterator[FieldPlace]:
    for name, info in section.model_fields.items():
        path = prefix + name
        yield FieldPlace(path, info, variant)
        for tag, inner in sections_of(info.annotation).items():
            yield from _walk(inner, f"{path}.", tag)


def _type_of(section: type[Section]) -> str | None:
    field = section.model_fields.get("type")
    if field is None or get_origin(field.annotation) is not Literal:
        return None
    return str(get_args(field.annotation)[0])
