"""Ends a run that hangs: a phase that lasts many times its median leaves every thread's stack behind, and exit code
5."""

from __future__ import annotations

import faulthandler
import os
import statistics
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

from fastrl_cli.errors import DivergedError

HISTORY = 200


class Watchdog:
    """Watches the phase under way from a thread of its own. A phase never seen before is given the least limit
    alone."""

    def __init__(
        self, factor: float, least_seconds: float, run_dir: Path | None, bite: Callable[[int], None] = os._exit
    ) -> None:
        """`factor` times the median of a phase's durations, and at least `least_seconds`, is its limit. `bite` ends the
        process: a hung thread cannot be asked to."""
        self._factor = factor
        self._least = least_seconds
        self._run_dir = run_dir
        self._bite = bite
        self._durations: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._now: tuple[str, float] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastrl-watchdog", daemon=True)
        self._thread.start()

    def enter(self, phase: str | None) -> None:
        """Phase `phase` begins, and what was under way ends; None: nothing is under way that could be waited for."""
        started = time.monotonic()
        if self._now is not None:
            name, since = self._now
            self._durations[name].append(started - since)
        self._now = None if phase is None else (phase, started)

    def limit(self, phase: str) -> float:
        """Seconds that the phase may last."""
        durations = list(self._durations[phase])
        return max(self._least, self._factor * statistics.median(durations)) if durations else self._least

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(min(5.0, self._least / 4)):
            now = self._now
            if now is not None and (seconds := time.monotonic() - now[1]) > self.limit(now[0]):
                self._stop(now[0], seconds)
                return

    def _stop(self, phase: str, seconds: float) -> None:
        limit = self.limit(phase)
        text = f"error: the phase `{phase}` has lasted {seconds:.0f} s, over its limit of {limit:.0f} s: hung."
        where = ""
        if self._run_dir is not None and self._run_dir.is_dir():
            path = self._run_dir / "stacks.txt"
            with path.open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            where = f" Every thread's stack is in {path}."
        print(text + where + " The last checkpoint stands; faults.hang_* set the limit.", file=sys.stderr, flush=True)
        self._bite(DivergedError.exit_code)
