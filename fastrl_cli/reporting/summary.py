"""The result of a training run: what `--json` prints, and the table that closes a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import RenderableType
from rich.table import Table

from fastrl_cli.reporting.metrics import FAULTS, PHASES, Metrics
from fastrl_cli.reporting.wording import clock, percent, percent_with_interval

SCHEMA_VERSION = 1

Interval = tuple[float, float]


@dataclass(frozen=True)
class RunResult:
    """The document of `fastrl train --json`. Field names do not change within a `schema_version`."""

    run_dir: str
    algorithm: str
    engine: str
    pruning: str
    adaptive: str
    seed: int
    outcome: Literal["finished", "interrupted"]
    steps: int
    """Training steps done, those before a resume among them."""
    optimizer_steps: int
    accuracy_before: float | None
    accuracy_before_interval: Interval | None
    """95 % Wilson interval over the validation questions."""
    accuracy_after: float | None
    accuracy_after_interval: Interval | None
    validation_questions: int
    seconds: float
    """Wall time of all training steps: the sum of `phase_seconds`."""
    evaluation_seconds: float
    phase_seconds: dict[str, float]
    tokens: dict[str, int]
    """`generated`, `forward`, `trained`."""
    kept_fraction: float | None
    """Rollouts trained on, of those generated, over the whole run."""
    rollouts_per_question: dict[str, int | None]
    """n of the `first` and the `last` step."""
    faults: dict[str, int]
    report: str
    schema_version: int = SCHEMA_VERSION

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return asdict(self)

    def render(self) -> RenderableType:
        """The closing table."""
        first, last = self.rollouts_per_question["first"], self.rollouts_per_question["last"]
        rows = [
            ("accuracy before", percent_with_interval(self.accuracy_before, self.accuracy_before_interval)),
            ("accuracy after", percent_with_interval(self.accuracy_after, self.accuracy_after_interval)),
            ("validation problems", f"{self.validation_questions:,}"),
            ("rollouts kept", self._kept_text()),
            ("rollouts a question", f"{first} at first, {last} at last"),
            ("steps", f"{self.steps:,} ({self.optimizer_steps:,} optimiser steps)"),
            ("tokens", f"{self.tokens['generated']:,} generated, {self.tokens['trained']:,} trained on"),
            ("training time", clock(self.seconds)),
            *((f"  {name}", f"{spent:.1f} s") for name, spent in self.phase_seconds.items() if spent >= 0.05),
            ("evaluation time", clock(self.evaluation_seconds)),
            *((name.replace("_", " "), f"{count:,}") for name, count in self.faults.items() if count),
            ("run directory", self.run_dir),
            ("report", self.report),
        ]
        table = Table(title=self._title(), title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        return table

    def _title(self) -> str:
        method = f"{self.algorithm}, pruning {self.pruning}, rollouts {self.adaptive}, engine {self.engine}"
        return method if self.outcome == "finished" else f"{method}, {self.outcome}"

    def _kept_text(self) -> str:
        if self.kept_fraction is None or self.rollouts_per_question["first"] is None:
            return percent(self.kept_fraction)
        n = self.rollouts_per_question["first"]
        return f"{percent(self.kept_fraction)} of those generated (n at first {n})"


def wilson_interval(fraction: float, count: int, z: float = 1.959964) -> Interval:
    """Wilson's score interval of a proportion `fraction` observed over `count` trials (E. B. Wilson, 1927); 95 % for
    the default `z`. (0, 1) where nothing was observed."""
    if count == 0:
        return 0.0, 1.0
    centre = fraction + z * z / (2 * count)
    spread = z * math.sqrt(fraction * (1 - fraction) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def total(lines: Sequence[Metrics], name: str) -> float:
    """Sum of a metric over the lines that have it."""
    return math.fsum(line[name] for line in lines if name in line)


def summarize(
    *,
    run_dir: str,
    report: str,
    algorithm: str,
    engine: str,
    pruning: str,
    adaptive: str,
    seed: int,
    outcome: Literal["finished", "interrupted"],
    steps: Sequence[Metrics],
    evaluations: Sequence[Metrics],
) -> RunResult:
    """The result of a run from the lines of its two files of metrics, oldest first, so that a resumed run counts whole.

    The accuracy before is that of the evaluation after step 0; the accuracy after is the last evaluation's, if one came
    after training began.
    """
    before = next((line for line in evaluations if line["step"] == 0), None)
    after = next((line for line in reversed(evaluations) if line["step"] > 0), None)
    generated = total(steps, "rollouts/generated")
    return RunResult(
        run_dir=run_dir,
        report=report,
        algorithm=algorithm,
        engine=engine,
        pruning=pruning,
        adaptive=adaptive,
        seed=seed,
        outcome=outcome,
        steps=int(steps[-1]["step"]) if steps else 0,
        optimizer_steps=int(steps[-1].get("optimizer_steps", 0)) if steps else 0,
        accuracy_before=_accuracy(before),
        accuracy_before_interval=_interval(before),
        accuracy_after=_accuracy(after),
        accuracy_after_interval=_interval(after),
        validation_questions=int((after or before or {}).get("eval/questions", 0)),
        seconds=total(steps, "step_seconds"),
        evaluation_seconds=total(evaluations, "eval_seconds"),
        phase_seconds={phase: total(steps, f"phase_seconds/{phase}") for phase in PHASES},
        tokens={kind: int(total(steps, f"tokens/{kind}")) for kind in ("generated", "forward", "trained")},
        kept_fraction=total(steps, "rollouts/kept") / generated if generated else None,
        rollouts_per_question={"first": _n(steps[:1]), "last": _n(steps[-1:])},
        faults={kind: int(total(steps, f"faults/{kind}")) for kind in FAULTS},
    )


def _accuracy(evaluation: Metrics | None) -> float | None:
    return None if evaluation is None else evaluation["eval/accuracy"]


def _interval(evaluation: Metrics | None) -> Interval | None:
    if evaluation is None:
        return None
    return wilson_interval(evaluation["eval/accuracy"], int(evaluation["eval/questions"]))


def _n(lines: Sequence[Metrics]) -> int | None:
    return int(lines[0]["rollouts_per_question"]) if lines else None
