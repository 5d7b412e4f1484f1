"""`fastrl eval`, `fastrl prune-analyze` and `fastrl bench`: each a call and its result."""

from __future__ import annotations

from pathlib import Path

from fastrl_cli.commands.boundary import Outcome, Session


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


def bench_command(steps: int | None, seconds: float | None, progress: str, session: Session) -> Outcome:
    reporter = session.report(progress)
    reporter.line("measuring grpo with and without FastRL on the embedded default")
    from fastrl_cli.benchmark.run import bench

    return Outcome(bench(steps=steps, seconds=seconds, reporter=reporter))
