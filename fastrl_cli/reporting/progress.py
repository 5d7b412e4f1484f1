"""What a person sees while a command works. Everything goes to stderr: stdout belongs to the result."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TextIO

from fastrl_cli.errors import UsageError
from fastrl_cli.reporting.metrics import Metrics
from fastrl_cli.reporting.wording import clock, evaluation_text, example_text, step_text

MODES = ("auto", "rich", "plain", "none")


class Reporter(Protocol):
    """How the loop tells what it does. No call changes what it computes."""

    run_dir: Path | None
    """Set by the loop once the run directory exists, so that a failure can leave its traceback there."""

    def line(self, text: str) -> None:
        """Something to know: a choice and its reason, a path."""
        ...

    def warn(self, text: str) -> None:
        """Something to look at. The run goes on."""
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Around whatever takes a while: a phase of a step, or a wait such as `loading the model`. A long one gives
        signs of life."""
        ...

    def example(self, *, question: str, response: str, gold: str, correct: bool) -> None:
        """One problem with the model's answer."""
        ...

    def begin(self, total_steps: int, first_step: int = 0) -> None:
        """Training starts: `first_step` steps are done already."""
        ...

    def step(self, metrics: Metrics) -> None:
        """A training step is done. `metrics` is its line of `metrics.jsonl`, under flat names."""
        ...

    def evaluation(self, metrics: Metrics) -> None:
        """An evaluation is done. `metrics` is its line of `evaluations.jsonl`, under flat names."""
        ...

    def close(self) -> None:
        """Give the terminal back. May be called twice."""
        ...


def make_reporter(mode: str = "auto") -> Reporter:
    """The reporter for this process: `auto` is rich on a terminal, else plain lines; only the first of several
    processes speaks. Raises `UsageError` for an unknown mode."""
    if mode not in MODES:
        raise UsageError(f"--progress is {mode}: must be one of {', '.join(MODES)}. For example: --progress plain")
    if mode == "none" or os.environ.get("RANK", "0") != "0":
        return QuietReporter()
    if mode == "rich" or (mode == "auto" and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
        from fastrl_cli.reporting.rich_progress import RichReporter

        return RichReporter()
    return PlainReporter(sys.stderr)


class Pace:
    """Time left, from the seconds of the latest steps."""

    def __init__(self, total_steps: int, window: int = 20) -> None:
        self.total_steps = total_steps
        self._seconds: deque[float] = deque(maxlen=window)

    def observe(self, metrics: Metrics) -> float | None:
        """Seconds left after this step; None where they cannot be told."""
        if "step_seconds" in metrics:
            self._seconds.append(metrics["step_seconds"])
        left = self.total_steps - metrics["step"]
        return left * sum(self._seconds) / len(self._seconds) if self._seconds and left >= 0 else None


class QuietReporter:
    """Says nothing but warnings."""

    def __init__(self) -> None:
        self.run_dir: Path | None = None

    def line(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        if os.environ.get("RANK", "0") == "0":
            print(f"warning: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield

    def example(self, *, question: str, response: str, gold: str, correct: bool) -> None: ...

    def begin(self, total_steps: int, first_step: int = 0) -> None: ...

    def step(self, metrics: Metrics) -> None: ...

    def evaluation(self, metrics: Metrics) -> None: ...

    def close(self) -> None: ...


class PlainReporter:
    """One line a step, for files and pipes; a phase that takes long says so every `heartbeat_seconds`."""

    def __init__(self, stream: TextIO, heartbeat_seconds: float = 15.0) -> None:
        self.run_dir: Path | None = None
        self._stream = stream
        self._heartbeat_seconds = heartbeat_seconds
        self._pace = Pace(0)
        self._phase: tuple[str, float] | None = None
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="fastrl-heartbeat", daemon=True)
        self._heart.start()

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        outer, self._phase = self._phase, (name, time.monotonic())
        try:
            yield
        finally:
            self._phase = outer

    def example(self, *, question: str, response: str, gold: str, correct: bool) -> None:
        self.line(example_text(question=question, response=response, gold=gold, correct=correct))

    def begin(self, total_steps: int, first_step: int = 0) -> None:
        self._pace = Pace(total_steps)
        self.line(f"training: steps {first_step + 1} to {total_steps}")

    def step(self, metrics: Metrics) -> None:
        left = self._pace.observe(metrics)
        self.line(step_text(metrics, self._pace.total_steps, left))

    def evaluation(self, metrics: Metrics) -> None:
        self.line(evaluation_text(metrics))

    def close(self) -> None:
        self._closed.set()
        self._heart.join()

    def _beat(self) -> None:
        while not self._closed.wait(self._heartbeat_seconds):
            phase = self._phase
            if phase is not None and (seconds := time.monotonic() - phase[1]) >= self._heartbeat_seconds:
                self.line(f"  still at it: {phase[0]}, {clock(seconds)}")
