"""`fastrl bench`: contenders take turns on the same questions with the same weights, seeds and settings (A B A B), so
that a busy machine slows all of them; the first steps are dropped, and ratios are medians with bootstrap intervals."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from fastrl_cli.benchmark.contender import Measured, started
from fastrl_cli.benchmark.statistics import Estimate, Verdict, median, noise, speed_up, verdict
from fastrl_cli.benchmark.suites import Suite
from fastrl_cli.reporting.manifest import cpu_name, versions
from fastrl_cli.reporting.metrics import PHASES
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.reporting.summary import total
from fastrl_cli.reporting.wording import percent, percent_with_interval

WARM_UP_STEPS = 2
TOKENS = ("generated", "forward", "padding", "trained")
NOTE = (
    "A tiny model on a CPU shows what each phase costs and how much of it pruning saves. It cannot show the ratio of a "
    "large model on a GPU, whose shares of generation and update differ, nor what pruning does to a large model's "
    "accuracy."
)


@dataclass(frozen=True)
class MethodFigures:
    """One contender, over its measured steps."""

    name: str
    engine: str
    seconds: Estimate
    """Wall time of a step."""
    cpu_seconds: Estimate
    """Processor time of a step, over all threads and processes."""
    noise: float
    """Spread of the steps' wall time as a share of the median."""
    phase_milliseconds: dict[str, float]
    """Median of each phase."""
    tokens: dict[str, int]
    """Generated, forwarded (padding among them), padding and trained: figures that no machine changes."""
    optimizer_steps: int
    rollouts_per_question: float
    kept_fraction: float
    peak_rss_bytes: int
    accuracy_before: dict[str, float]
    accuracy_after: dict[str, float]
    step_seconds: list[float]


@dataclass(frozen=True)
class Comparison:
    """A contender against the baseline of its suite."""

    suite: str
    baseline: str
    other: str
    speed_up: Estimate
    verdict: Verdict
    update_speed_up: Estimate | None
    """Of the phase `update` alone, over the turns in which both had one."""
    equal_updates: bool
    """Both made the same number of optimiser steps. Where not, the ratio is not one of equal work."""

    def sentence(self) -> str:
        """For a person."""
        how = "inconclusive" if self.verdict == "inconclusive" else f"{self.other} is {self.verdict}"
        ratio = self.speed_up
        unequal = "" if self.equal_updates else ", but with another number of optimiser steps"
        times = f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
        return f"{self.other} against {self.baseline}: {how}, {times}{unequal}"


@dataclass(frozen=True)
class SuiteFigures:
    """A suite's contenders and comparisons."""

    title: str
    methods: list[MethodFigures]
    comparisons: list[Comparison]

    def render(self) -> RenderableType:
        """Milliseconds of the phases, then the figures that no machine changes."""
        table = Table(title=f"{self.title}: milliseconds, medians", title_justify="left")
        table.add_column("")
        for method in self.methods:
            table.add_column(method.name, justify="right", overflow="fold")
        for phase in PHASES:
            table.add_row(phase, *(f"{method.phase_milliseconds.get(phase, 0.0):.1f}" for method in self.methods))
        table.add_row("step", *(f"{1000 * method.seconds.value:.0f}" for method in self.methods), style="bold")
        table.add_row("processor time", *(f"{1000 * method.cpu_seconds.value:.0f}" for method in self.methods))
        table.add_row("noise", *(percent(method.noise) for method in self.methods))
        table.add_row("engine", *(method.engine for method in self.methods))
        table.add_row("n", *(f"{method.rollouts_per_question:.3g}" for method in self.methods))
        table.add_row("rollouts kept", *(percent(method.kept_fraction) for method in self.methods))
        for kind in TOKENS:
            table.add_row(f"tokens {kind}", *(f"{method.tokens[kind]:,}" for method in self.methods))
        table.add_row("optimiser steps", *(f"{method.optimizer_steps:,}" for method in self.methods))
        table.add_row("peak memory, GiB", *(f"{method.peak_rss_bytes / 2**30:.2f}" for method in self.methods))
        if any(method.accuracy_after for method in self.methods):
            table.add_row("accuracy before", *(_accuracy(method.accuracy_before) for method in self.methods))
            table.add_row("accuracy after", *(_accuracy(method.accuracy_after) for method in self.methods))
        updates = [
            f"update phase, {one.other} against {one.baseline}: {one.update_speed_up}x"
            for one in self.comparisons
            if one.update_speed_up is not None
        ]
        return Group(table, *(comparison.sentence() for comparison in self.comparisons), *updates)


@dataclass(frozen=True)
class BenchResult:
    """The document of `fastrl bench --json`."""

    suite: str
    protocol: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    suites: list[SuiteFigures]
    note: str = NOTE
    schema_version: int = 2

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        machine = self.machine
        head = (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, "
            f"load {machine['load_before']:.2f} before and {machine['load_after']:.2f} after"
        )
        first = [self.suites[0].comparisons[0].sentence()] if self.suites[0].comparisons else []
        return Group(*first, head, *(suite.render() for suite in self.suites), self.note)

    def least_speed_up(self) -> float:
        """Lower end of the interval of the comparison that stands first."""
        return self.suites[0].comparisons[0].speed_up.low


def bench(
    name: str, suites: Sequence[Suite], *, steps: int, seconds: float | None, threads: int, reporter: Reporter
) -> BenchResult:
    """Measure all suites: `steps` steps of each contender, or as many as `seconds` leave for its suite."""
    load_before = os.getloadavg()[0]
    figures = []
    for suite in suites:
        share = None if seconds is None else seconds / len(suites)
        with tempfile.TemporaryDirectory(prefix="fastrl-bench-") as folder:
            measured = measure(suite, Path(folder), steps, share, threads, reporter)
        figures.append(summarize(suite, measured))
    return BenchResult(
        suite=name,
        protocol={
            "order": "interleaved", "warm_up_steps": WARM_UP_STEPS, "steps": steps, "seconds": seconds,
            "equal": ["weights", "questions", "seeds", "rollouts asked for", "optimiser steps"],
        },
        machine={
            "platform": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count(), "threads": threads,
            "load_before": load_before, "load_after": os.getloadavg()[0],
        },
        versions=versions(),
        suites=figures,
    )  # fmt: skip


def measure(
    suite: Suite, folder: Path, steps: int, seconds: float | None, threads: int, reporter: Reporter
) -> list[Measured]:
    """The measured steps of every contender, taken in turns."""
    with started(suite.contenders, folder, reporter, threads=threads, fixed_length=suite.fixed_length) as running:
        if suite.evaluates:
            for process, measured in running.values():
                measured.accuracy_before = process.ask("evaluate")
        start = time.monotonic()
        for number in range(WARM_UP_STEPS + steps):
            if seconds is not None and number > WARM_UP_STEPS and time.monotonic() - start > seconds:
                break
            for name, (process, measured) in running.items():
                with reporter.phase(f"{name}, step {number + 1}"):
                    answer = process.ask("step")
                if number < WARM_UP_STEPS:
                    measured.warm_up(answer)
                else:
                    measured.take(answer)
        if suite.evaluates:
            for process, measured in running.values():
                measured.accuracy_after = process.ask("evaluate")
        return [measured for _, measured in running.values()]


def summarize(suite: Suite, measured: Sequence[Measured]) -> SuiteFigures:
    """Medians, sums and ratios of a suite."""
    baseline = next(one for one in measured if one.name == suite.baseline)
    comparisons = [compare(suite.title, baseline, other) for other in measured if other is not baseline]
    return SuiteFigures(suite.title, [figures_of(one) for one in measured], comparisons)


def figures_of(measured: Measured) -> MethodFigures:
    """One contender's figures."""
    lines = measured.metrics
    generated = total(lines, "rollouts/generated")
    return MethodFigures(
        name=measured.name,
        engine=measured.engine,
        seconds=median(measured.seconds),
        cpu_seconds=median(measured.cpu_seconds),
        noise=noise(measured.seconds),
        phase_milliseconds={
            phase: 1000 * float(np.median([line.get(f"phase_seconds/{phase}", 0.0) for line in lines]))
            for phase in PHASES
        },
        tokens={kind: int(total(lines, f"tokens/{kind}")) for kind in TOKENS},
        optimizer_steps=measured.optimizer_steps,
        rollouts_per_question=total(lines, "rollouts_per_question") / len(lines),
        kept_fraction=total(lines, "rollouts/kept") / max(generated, 1),
        peak_rss_bytes=measured.peak_rss_bytes,
        accuracy_before=measured.accuracy_before,
        accuracy_after=measured.accuracy_after,
        step_seconds=measured.seconds,
    )


def compare(title: str, baseline: Measured, other: Measured) -> Comparison:
    """Ratios of paired steps."""
    ratio = speed_up(baseline.seconds, other.seconds)
    updates = [
        seconds
        for pair in zip(baseline.metrics, other.metrics, strict=True)
        if all(seconds := [line["phase_seconds/update"] for line in pair])
    ]
    return Comparison(
        suite=title,
        baseline=baseline.name,
        other=other.name,
        speed_up=ratio,
        verdict=verdict(ratio),
        update_speed_up=speed_up(*zip(*updates, strict=True)) if updates else None,
        equal_updates=baseline.optimizer_steps == other.optimizer_steps,
    )


def _accuracy(document: Mapping[str, float]) -> str:
    interval = document["accuracy_low"], document["accuracy_high"]
    return percent_with_interval(document["accuracy"], interval)
