"""`fastrl bench`: plain GRPO against GRPO with FastRL on the embedded default, step by step in one process.

The two methods take turns (A B A B) on the same questions with the same weights, seeds and settings, so that a busy
machine slows both; the first steps are dropped, and ratios are medians with bootstrap intervals."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table

from fastrl_cli.config.pruning import FixedRolloutsConfig, NoPruningConfig
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.load import load_questions
from fastrl_cli.reporting.metrics import PHASES
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.training.build import load_model_parts, make_accelerator, make_trainer
from fastrl_cli.training.loop import Metrics, Trainer

WARM_UP_STEPS = 2
RESAMPLES = 2000
DEFAULT_STEPS = 12
PICTURE_SIZES = (84, 448)


@dataclass(frozen=True)
class MethodTimes:
    """One method on one picture size."""

    name: str
    picture_size: int
    step_seconds: list[float]
    phase_milliseconds: dict[str, float]
    """Median of each phase."""
    tokens: dict[str, int]
    """Generated, forwarded and trained over the measured steps: figures that no machine changes."""
    kept_fraction: float


@dataclass(frozen=True)
class SpeedUp:
    """Median of the step-by-step ratios of seconds, grpo over fastrl, with a bootstrap 95 % interval."""

    picture_size: int
    ratio: float
    interval: tuple[float, float]
    verdict: str
    """`faster`, `slower` or `inconclusive`, by whether the interval holds 1."""

    def sentence(self) -> str:
        low, high = self.interval
        than = "inconclusive" if self.verdict == "inconclusive" else f"fastrl is {self.verdict} than grpo"
        return f"{self.picture_size}²: {than}, {self.ratio:.2f}x [{low:.2f}, {high:.2f}]"


@dataclass(frozen=True)
class BenchResult:
    """The document of `fastrl bench --json`."""

    engine: str
    threads: int
    load_1_minute: float
    methods: list[MethodTimes]
    speed_ups: list[SpeedUp]
    schema_version: int = 1
    note: str = field(
        default="A tiny model on a CPU shows what each phase costs and what pruning saves of it; the ratio of a "
        "large model on a GPU depends on its own shares of generation and update."
    )

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        table = Table(
            title=f"milliseconds, medians; engine {self.engine}, {self.threads} threads", title_justify="left"
        )
        table.add_column("phase")
        for method in self.methods:
            table.add_column(f"{method.name}\n{method.picture_size} × {method.picture_size}", justify="right")
        for phase in PHASES:
            table.add_row(phase, *(f"{method.phase_milliseconds[phase]:.1f}" for method in self.methods))
        table.add_row("step", *(f"{1000 * float(np.median(m.step_seconds)):.0f}" for m in self.methods), style="bold")
        table.add_row("rollouts kept", *(f"{100 * method.kept_fraction:.0f} %" for method in self.methods))
        for kind in ("generated", "forward", "trained"):
            table.add_row(f"tokens {kind}", *(f"{method.tokens[kind]:,}" for method in self.methods))
        return Group(table, *(speed.sentence() for speed in self.speed_ups), self.note)


def bench(*, steps: int | None, seconds: float | None, reporter: Reporter) -> BenchResult:
    """Measure both methods at each picture size, for `steps` measured steps each or until `seconds` are over."""
    deadline = None if seconds is None else time.monotonic() + seconds
    methods: list[MethodTimes] = []
    speed_ups: list[SpeedUp] = []
    engine = ""
    load = os.getloadavg()[0]
    for place, size in enumerate(PICTURE_SIZES):
        now = time.monotonic()
        until = None if deadline is None else now + (deadline - now) / (len(PICTURE_SIZES) - place)
        lines, engine = measure(size, steps or DEFAULT_STEPS, until, reporter)
        methods += [summarize(name, size, rows) for name, rows in lines.items()]
        speed_ups.append(compare(size, lines["grpo"], lines["fastrl"]))
    return BenchResult(engine, torch.get_num_threads(), load, methods, speed_ups)


def method_configs(size: int) -> dict[str, RunConfig]:
    """The embedded default, and the same without pruning and with a fixed number of rollouts."""
    base = RunConfig()
    fastrl = base.model_copy(update={"builtin": base.builtin.model_copy(update={"picture_size": size})})
    plain = fastrl.model_copy(update={"pruning": NoPruningConfig(), "adaptive": FixedRolloutsConfig()})
    return {"grpo": plain, "fastrl": fastrl}


def measure(size: int, steps: int, deadline: float | None, reporter: Reporter) -> tuple[dict[str, list[Metrics]], str]:
    """The metrics of the measured steps of both methods, taken in turns."""
    configs = method_configs(size)
    first = configs["grpo"]
    questions = load_questions(first.data, first.builtin, first.seed).train
    accelerator = make_accelerator(first)
    trainers: dict[str, Trainer] = {}
    engines = []
    try:
        for name, config in configs.items():
            parts = load_model_parts(config, config.model.path, accelerator, reporter)
            engines.append(parts.engine)
            trainers[name], _ = make_trainer(config, questions, parts, accelerator, reporter)
        lines: dict[str, list[Metrics]] = {name: [] for name in trainers}
        for number in range(WARM_UP_STEPS + steps):
            if number > WARM_UP_STEPS and deadline is not None and time.monotonic() > deadline:
                break
            for name, trainer in trainers.items():
                metrics = trainer.step().metrics
                reporter.line(f"{size}² {name} step {number + 1}: {metrics['step_seconds']:.2f} s")
                if number >= WARM_UP_STEPS:
                    lines[name].append(metrics)
    finally:
        for engine in engines:
            engine.close()
    return lines, engines[0].name


def summarize(name: str, size: int, lines: Sequence[Mapping[str, float]]) -> MethodTimes:
    """Medians and sums of the measured steps."""
    generated = sum(line["rollouts/generated"] for line in lines)
    return MethodTimes(
        name=name,
        picture_size=size,
        step_seconds=[line["step_seconds"] for line in lines],
        phase_milliseconds={
            phase: 1000 * float(np.median([line[f"phase_seconds/{phase}"] for line in lines])) for phase in PHASES
        },
        tokens={
            kind: int(sum(line[f"tokens/{kind}"] for line in lines)) for kind in ("generated", "forward", "trained")
        },
        kept_fraction=sum(line["rollouts/kept"] for line in lines) / generated,
    )


def compare(size: int, slow: Sequence[Mapping[str, float]], fast: Sequence[Mapping[str, float]]) -> SpeedUp:
    """Ratio of the medians over the paired steps, resampled."""
    a = np.array([line["step_seconds"] for line in slow])
    b = np.array([line["step_seconds"] for line in fast])
    ratios = a / b
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    verdict = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    return SpeedUp(size, float(np.median(ratios)), (float(low), float(high)), verdict)
