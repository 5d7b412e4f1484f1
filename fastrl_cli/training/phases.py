"""Seconds of each phase of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastrl_cli.reporting.metrics import PHASES
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.training.watchdog import Watchdog


class PhaseClock:
    """Adds up the wall time of the phases of one step. A phase may be entered several times; phases may nest, and the
    inner one's time is not counted in the outer."""

    def __init__(self, reporter: Reporter, watchdog: Watchdog | None = None) -> None:
        self._reporter = reporter
        self._watchdog = watchdog
        self._start = time.perf_counter()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open: list[str] = []
        self._mark = self._start

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._open:
            self._seconds[self._open[-1]] += now - self._mark
        self._mark = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to `name`."""
        self._charge()
        self._open.append(name)
        self._watch()
        try:
            with self._reporter.phase(name):
                yield
        finally:
            self._charge()
            self._open.pop()
            self._watch()

    def _watch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.enter(self._open[-1] if self._open else None)

    def metrics(self) -> dict[str, float]:
        """`step_seconds` since the clock was made, and `phase_seconds/*`, which add up to it."""
        total = time.perf_counter() - self._start
        named = {name: seconds for name, seconds in self._seconds.items() if name != "other"}
        named["other"] = total - sum(named.values())
        return {"step_seconds": total, **{f"phase_seconds/{name}": named[name] for name in PHASES}}
