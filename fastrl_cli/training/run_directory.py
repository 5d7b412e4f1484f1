"""The run directory: what is in it, when it may be used, and how a resumed run cuts it back."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from fastrl_cli.errors import DataError, MissingError, UsageError
from fastrl_cli.reporting.wording import resume_command

CONFIG = "config.resolved.yaml"
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
REPORT = "report.md"
LOCK = ".lock"
CHANGES_ON_RESUME = ("started", "command", "engine", "versions", "machine", "git")
"""What a manifest records again each time that its run goes on."""
MIN_FREE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class RunDirectory:
    """`config.resolved.yaml`, `manifest.json`, `metrics.jsonl`, `evaluations.jsonl`, `rollouts/`, `checkpoints/`,
    `report.md`."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def evaluations(self) -> Path:
        return self.path / EVALUATIONS

    @property
    def report(self) -> Path:
        return self.path / REPORT

    def claim(self, *, fresh: bool) -> TextIO:
        """Make the directory and hold it for this process until the returned file is closed. Raises UsageError where
        another process holds it, or where it is to be `fresh` and holds something."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = (self.path / LOCK).open("a", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fresh:
                check_empty(self.path)
        except BlockingIOError as error:
            lock.close()
            raise UsageError(f"run_dir {self.path} is in use by another process. Wait, or name another.") from error
        except OSError:
            pass  # a file system without locks
        except UsageError:
            lock.close()
            raise
        return lock

    def create(self, config_text: str, manifest: Mapping[str, Any], *, resumed: bool) -> None:
        """Write what is known before the first step. The files of a run that goes on stay; its manifest gets an entry
        in `resumed`. Raises DataError where data or model are not those the run began with."""
        if resumed:
            first = json.loads(self.manifest.read_text(encoding="utf-8"))
            check_unchanged(self.path, first, manifest)
            now = {name: manifest[name] for name in CHANGES_ON_RESUME}
            manifest = {**first, "resumed": [*first.get("resumed", ()), now]}
        for folder in (self.path / "rollouts", self.path / "checkpoints"):
            folder.mkdir(exist_ok=True)
        write_text(self.config, config_text)
        write_text(self.manifest, json.dumps(manifest, indent=2) + "\n")


def check_unchanged(path: Path, first: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises DataError where a resumed run would go on with other questions or from another model."""
    changed = [
        f"the {split} questions"
        for split, description in now["data"].items()
        if first["data"].get(split, description)["fingerprint"] != description["fingerprint"]
    ]
    if first["model"]["sha256"] != now["model"]["sha256"]:
        changed.append(f"the weights of model {now['model']['path']}")
    if changed:
        raise DataError(
            f"--resume {path}: {' and '.join(changed)} have changed since the run began (manifest.json has their "
            "hashes). Put the old ones back, or start a new run."
        )


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place, then rename it."""
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(beside, path)


def default_run_dir(algorithm: str, now: datetime) -> Path:
    """`runs/<algorithm>-<date and time>`."""
    return Path("runs") / f"{algorithm}-{now:%Y%m%d-%H%M%S}"


def check_new(path: Path) -> None:
    """Raises UsageError for a directory that holds something, MissingError where it could not be written to."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"run_dir {path} is a file: name a directory that is empty or does not exist yet")
    if path.is_dir():
        check_empty(path)
    check_writable(path)


def check_empty(path: Path) -> None:
    """Raises UsageError for a directory that holds more than a lock."""
    if any(entry.name != LOCK for entry in path.iterdir()):
        raise UsageError(
            f"run_dir {path} is not empty: name another, or go on with the run in it: {resume_command(path)}"
        )


def check_writable(path: Path) -> None:
    """Raises MissingError where the directory, or the nearest one above it, cannot be written to or is full, and
    UsageError where a file stands in its place."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise UsageError(f"run_dir {path}: {place} is a file. Choose another with --run-dir")
    if not os.access(place, os.W_OK | os.X_OK):
        raise MissingError(f"run_dir {path}: no permission to write in {place}. Choose another with --run-dir")
    free = shutil.disk_usage(place).free
    if free < MIN_FREE_BYTES:
        raise MissingError(f"run_dir {path}: only {free / 2**20:.0f} MiB free on the disk; make room or use --run-dir")


def check_resumable(path: Path) -> None:
    """Raises UsageError where there is no run to go on with."""
    if not path.is_dir():
        raise UsageError(f"--resume {path}: no such directory")
    missing = [name for name in (CONFIG, MANIFEST) if not (path / name).is_file()]
    if missing:
        raise UsageError(f"--resume {path}: not a run directory, {' and '.join(missing)} missing in it")
