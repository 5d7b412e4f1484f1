"""A configuration as a YAML file that loads back to an equal one."""

from __future__ import annotations

from pathlib import Path

import yaml

from fastrl_cli.config.load import load_resumed
from fastrl_cli.config.run import RunConfig


def to_yaml(config: RunConfig) -> str:
    """Every field, defaults written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def read_resolved(path: Path) -> RunConfig:
    """The configuration of a `config.resolved.yaml`. Raises `UsageError`."""
    return load_resumed(path)
