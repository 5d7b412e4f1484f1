"""Live progress on a terminal: a bar, the latest step's numbers, the phase at work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastrl_cli.reporting.metrics import Metrics
from fastrl_cli.reporting.progress import Pace
from fastrl_cli.reporting.wording import clock, evaluation_text, example_text, numbers_text, phases_text


class RichReporter:
    """Redraws a few lines at the bottom of the terminal, lines of text above them."""

    def __init__(self, console: Console | None = None) -> None:
        self.run_dir: Path | None = None
        self._console = console or Console(stderr=True, highlight=False)
        self._pace: Pace | None = None
        self._step: Metrics = {}
        self._seconds_left: float | None = None
        self._phase: tuple[str, float] | None = None
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def line(self, text: str) -> None:
        self._console.print(Text(text))

    def warn(self, text: str) -> None:
        self._console.print(Text(f"warning: {text}", style="yellow"))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        outer, self._phase = self._phase, (name, time.monotonic())
        try:
            yield
        finally:
            self._phase = outer

    def example(self, *, question: str, response: str, gold: str, correct: bool) -> None:
        text = example_text(question=question, response=response, gold=gold, correct=correct)
        self._console.print(Panel(Text(text), title="one problem before training", title_align="left", expand=False))

    def begin(self, total_steps: int, first_step: int = 0) -> None:
        self._pace = Pace(total_steps)
        self._step = {"step": first_step}

    def step(self, metrics: Metrics) -> None:
        self._step = dict(metrics)
        if self._pace is not None:
            self._seconds_left = self._pace.observe(metrics)

    def evaluation(self, metrics: Metrics) -> None:
        self.line(evaluation_text(metrics))

    def close(self) -> None:
        self._phase = None
        self._pace = None
        self._live.stop()

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._pace is not None:
            parts += [self._bar(self._pace.total_steps), Text(numbers_text(self._step))]
            parts.append(Text(phases_text(self._step), style="dim"))
        if self._phase is not None:
            name, since = self._phase
            parts.append(Text(f"▸ {name} {clock(time.monotonic() - since)}", style="cyan"))
        return Group(*parts)

    def _bar(self, total: int) -> RenderableType:
        done = self._step.get("step", 0)
        row = Table.grid(padding=(0, 1))
        left = "" if self._seconds_left is None else f"ETA {clock(self._seconds_left)}"
        row.add_row(f"step {done:.0f}/{total}", ProgressBar(total=total, completed=done, width=40), left)
        return row
