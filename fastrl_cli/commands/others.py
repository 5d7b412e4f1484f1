"""`fastrl eval`, `fastrl prune-analyze` and `fastrl bench`: each a call and its result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fastrl_cli.commands.boundary import Outcome, Session
from fastrl_cli.errors import UsageError

TOO_SLOW = 1
"""Exit code of a benchmark whose speed-up is below `--min-speedup`."""


def eval_command(model: str, benchmark: str, progress: str, session: Session) -> Outcome:
    reporter = session.report(progress)
    reporter.line(f"evaluating {model} on {benchmark}")
    from fastrl_cli.evaluation.run import evaluate_run

    return Outcome(evaluate_run(model, benchmark=benchmark, reporter=reporter))


def analyze_command(source: Path, progress: str, session: Session) -> Outcome:
    reporter = session.report(progress)
    reporter.line(f"reading the rollouts of {source}")
    from fastrl_cli.analysis.run import analyze

    return Outcome(analyze(source, reporter=reporter))


@dataclass(frozen=True)
class BenchOptions:
    """The options of `fastrl bench`."""

    suite: str
    peer: str | None
    steps: int
    seconds: float | None
    threads: int | None
    min_speedup: float | None
    progress: str


def bench_command(options: BenchOptions, session: Session) -> Outcome:
    chosen = options.peer or options.suite
    reporter = session.report(options.progress)
    reporter.line(f"measuring {chosen}: the contenders take turns, which needs an otherwise idle machine")
    from fastrl_cli.benchmark.suites import PEERS, SUITES

    table = PEERS if options.peer else SUITES
    if chosen not in table:
        option = "--peer" if options.peer else "--suite"
        raise UsageError(f"{option} is {chosen}: must be one of {', '.join(table)}. For example: {option} {min(table)}")
    from fastrl_cli.benchmark.run import bench

    result = bench(
        chosen,
        table[chosen](),
        steps=options.steps,
        seconds=options.seconds,
        threads=options.threads or os.cpu_count() or 1,
        reporter=reporter,
    )
    too_slow = options.min_speedup is not None and result.least_speed_up() < options.min_speedup
    return Outcome(result, TOO_SLOW if too_slow else 0)
