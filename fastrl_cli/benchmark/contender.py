"""The benchmark's side of a contender: its process, its turns, what it measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastrl_cli.config.export import to_yaml
from fastrl_cli.config.run import RunConfig
from fastrl_cli.errors import FastRLError
from fastrl_cli.reporting.progress import Reporter

WORKER = "fastrl_cli.benchmark.worker"


@dataclass(frozen=True)
class Contender:
    """What is measured: a configuration, and the module whose process runs it."""

    name: str
    config: RunConfig
    module: str = WORKER


@dataclass
class Measured:
    """The measured steps of a contender, in the order of its turns."""

    name: str
    engine: str
    metrics: list[dict[str, float]] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_rss_bytes: int = 0
    accuracy_before: dict[str, float] = field(default_factory=dict)
    accuracy_after: dict[str, float] = field(default_factory=dict)
    updates_before: float = 0.0
    """Optimiser steps up to the first measured step."""

    @property
    def seconds(self) -> list[float]:
        """Wall time of each step."""
        return [line["step_seconds"] for line in self.metrics]

    @property
    def optimizer_steps(self) -> int:
        """Of the measured steps."""
        return int(self.metrics[-1]["optimizer_steps"] - self.updates_before)

    def warm_up(self, answer: dict[str, Any]) -> None:
        """A step that is not measured."""
        self.updates_before = answer["metrics"]["optimizer_steps"]

    def take(self, answer: dict[str, Any]) -> None:
        """A measured step."""
        self.metrics.append(answer["metrics"])
        self.cpu_seconds.append(answer["cpu_seconds"])
        self.peak_rss_bytes = max(self.peak_rss_bytes, answer["peak_rss_bytes"])


class Process:
    """A contender's process. It works only between a command and its answer."""

    def __init__(self, contender: Contender, folder: Path, *, threads: int, fixed_length: bool) -> None:
        self.name = contender.name
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', contender.name.lower())}.yaml"
        path.write_text(to_yaml(contender.config.model_copy(update={"threads": threads})), encoding="utf-8")
        self._log = path.with_suffix(".log").open("w+", encoding="utf-8")
        options = ["--fixed-length"] if fixed_length else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", contender.module, str(path), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )

    def read(self) -> dict[str, Any]:
        """The next answer. Raises FastRLError where the process ended without one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = "".join(self._log.readlines()[-15:])
            raise FastRLError(f"the process of {self.name} ended with {self._process.wait()}:\n{last}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


@contextmanager
def started(
    contenders: Sequence[Contender], folder: Path, reporter: Reporter, *, threads: int, fixed_length: bool
) -> Iterator[dict[str, tuple[Process, Measured]]]:
    """The contenders' processes, one started after the other and each ready."""
    with ExitStack() as stack:
        running = {}
        for contender in contenders:
            with reporter.phase(f"starting {contender.name}"):
                process = Process(contender, folder, threads=threads, fixed_length=fixed_length)
                stack.callback(process.close)
                running[contender.name] = process, Measured(contender.name, process.read()["engine"])
        yield running
