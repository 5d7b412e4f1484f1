"""Running the real command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = (
    "batch.questions_per_step=3",
    "batch.rollouts=4",
    "sampling.max_tokens=16",
    "data.validation_limit=8",
    "builtin.train_size=12",
)
"""A run of seconds."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` printed, alone on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document


def command(*arguments: str | Path) -> list[str]:
    """`fastrl ...` with this interpreter."""
    return [sys.executable, "-m", "fastrl_cli.cli", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """One thread, no network."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}


def fastrl(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=cwd, env=environment(**variables), timeout=1200
    )
    return Done(done.returncode, done.stdout, done.stderr)


def train(run_dir: Path, *arguments: str | Path, engine: str = "transformers", **variables: str) -> Done:
    """A small training run that must succeed; its result is on stdout as JSON."""
    options = ("train", "--engine", engine, "--run-dir", run_dir, "--json", "--debug", *arguments, *SMALL)
    done = fastrl(*options, **variables)
    assert done.code == 0, done.stderr
    return done
