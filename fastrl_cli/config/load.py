"""From the command line to one validated configuration.

Later beats earlier: the defaults (the embedded demonstration), `--preset`, `--algo`, the configuration files from left
to right, the other options, the positional overrides. Two rules keep the halves of different things from being mixed:
a section that names another `type` (an algorithm that names another `name`) inherits nothing from the one before; and
what `--preset` or `--algo` chooses is not overruled by a file that chooses it too, only refined by one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fastrl_cli.config import checks
from fastrl_cli.config.explain import explain, wrong_value
from fastrl_cli.config.layers import Layer, from_file, from_flag, from_override, from_values, merge
from fastrl_cli.config.presets import ALGORITHMS, METHODS
from fastrl_cli.config.run import RunConfig
from fastrl_cli.config.schema import find_field
from fastrl_cli.errors import UsageError

Warn = Callable[[str], None]

CHANGEABLE = (
    "batch.steps", "batch.epochs", "eval.", "checkpoint.", "log.", "faults.", "threads", "optimizer.learning_rate",
)  # fmt: skip
"""What may differ when a run goes on: what does not touch its steps, and the learning rate, so that a run that
diverged can go on with a lower one."""


def load_config(
    *,
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    preset: str | None = None,
    algorithm: str | None = None,
    flags: Mapping[str, tuple[str, object]] | None = None,
    warn: Warn = lambda _: None,
) -> RunConfig:
    """Merge the layers and validate. `flags` maps a dotted name to the option it came from and its value:
    `{"batch.steps": ("--steps 20", 20)}`. `warn` is told what runs but hardly as meant.

    Raises `UsageError` that names every wrong field with its value, its place, the rule and an example.
    """
    layers = [
        from_values(RunConfig().model_dump(), "the default"),
        *_preset_layers(preset, algorithm),
        *(_refining(from_file(path), path, preset, algorithm, warn) for path in files),
        *(from_flag(name, value, option) for name, (option, value) in (flags or {}).items()),
        *map(from_override, overrides),
    ]
    return _validated(layers, warn)


def load_resumed(
    resolved: Path, *, overrides: Sequence[str] = (), flags: Mapping[str, tuple[str, object]] | None = None
) -> RunConfig:
    """The configuration of a run to go on with, from its `config.resolved.yaml`. Only what does not change the
    training may differ: how long it goes on, what is evaluated, written and shown. Raises `UsageError`."""
    changes = [
        *(from_flag(name, value, option) for name, (option, value) in (flags or {}).items()),
        *map(from_override, overrides),
    ]
    for name, origin in (item for change in changes for item in change.origins.items()):
        if not name.startswith(CHANGEABLE):
            raise UsageError(
                f"`{name}` {origin} cannot change in a run that goes on: it takes its settings from {resolved}. "
                "Leave it out, or start a new run."
            )
    return _validated([from_file(resolved), *changes])


def _validated(layers: Sequence[Layer], warn: Warn = lambda _: None) -> RunConfig:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        values = merge(values, layer.values)
        origins = _overlaid(origins, layer.origins)
    truths = [
        wrong_value(path, value, "must not be true or false", origin=origins.get(path))
        for path, value in _misplaced_truths(values)
    ]
    if truths:
        raise UsageError("\n".join(truths))
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise UsageError(explain(error, values, origins)) from error
    if wrong := checks.errors(config):
        raise UsageError("\n".join(wrong))
    for sentence in checks.warnings(config):
        warn(sentence)
    return config


def _overlaid(origins: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Where each name was last written: a section written whole hides where its fields were, a field is a place in its
    section that was written now."""
    hidden = tuple(f"{name}." for name in above)
    merged = {name: origin for name, origin in origins.items() if not name.startswith(hidden)}
    for name, origin in above.items():
        section = name
        while section := section.rpartition(".")[0]:
            merged[section] = origin
    return merged | dict(above)


def _preset_layers(preset: str | None, algorithm: str | None) -> Iterator[Layer]:
    if preset is not None:
        _known("--preset", preset, METHODS)
        yield from_values(METHODS[preset], f"from `--preset {preset}`")
    if algorithm is not None:
        _known("--algo", algorithm, ALGORITHMS)
        yield from_values({"algorithm": ALGORITHMS[algorithm]}, f"from `--algo {algorithm}`")


def _known(option: str, name: str, table: Mapping[str, object]) -> None:
    if name not in table:
        raise UsageError(
            f"{option} is {name}: must be one of {', '.join(table)}. For example: {option} {next(iter(table))}"
        )


def _refining(layer: Layer, path: Path, preset: str | None, algorithm: str | None, warn: Warn) -> Layer:
    """A file's layer without the sections in which it chooses what `--preset` or `--algo` has chosen."""
    chosen: dict[str, tuple[str, str | None, str]] = {}
    if algorithm is not None:
        chosen["algorithm"] = "name", algorithm, f"--algo {algorithm}"
    if preset is not None:
        chosen |= {section: ("type", None, f"--preset {preset}") for section in METHODS[preset]}
    for section, (key, allowed, option) in chosen.items():
        values = layer.values.get(section)
        if isinstance(values, Mapping) and key in values and values[key] != allowed:
            warn(f"the section `{section}` of {path} ({key}: {values[key]}) is left out: {option} takes its place.")
            layer = layer.without(section)
    return layer


def _misplaced_truths(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """The names with a true or false that pydantic would read as the number 1 or 0."""
    for name, value in values.items():
        path = prefix + name
        if isinstance(value, Mapping):
            yield from _misplaced_truths(value, f"{path}.")
        elif isinstance(value, bool):
            info = find_field(path)
            if info is not None and "bool" not in str(info.annotation):
                yield path, value
