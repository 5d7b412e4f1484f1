"""`fastrl eval`: accuracy of a model, or of a run's newest checkpoint, on validation questions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from fastrl_cli.config.export import read_resolved
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.load import load_questions
from fastrl_cli.errors import DataError, UsageError
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.reporting.wording import percent, percent_with_interval
from fastrl_cli.rewards import AccuracyFormatReward
from fastrl_cli.training.build import load_model_parts, make_accelerator, make_validator
from fastrl_cli.training.checkpoint import newest_whole
from fastrl_cli.training.run_directory import RunDirectory

BENCHMARKS = ("validation",)


@dataclass(frozen=True)
class EvalResult:
    """The document of `fastrl eval --json`."""

    model: str
    """The folder whose weights were evaluated, or `builtin`."""
    benchmark: str
    source: str
    engine: str
    temperature: float
    top_p: float
    questions: int
    unusable: int
    """Questions without a usable prompt; they count as wrong."""
    accuracy: float
    accuracy_interval: tuple[float, float]
    """95 % Wilson interval."""
    format: float
    by_kind: dict[str, float]
    seconds: float
    schema_version: int = 1

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        table = Table(title=f"{self.model} on {self.source}", title_justify="left", show_header=False)
        table.add_row("accuracy", percent_with_interval(self.accuracy, self.accuracy_interval))
        for kind, accuracy in self.by_kind.items():
            table.add_row(f"  {kind}", percent(accuracy))
        table.add_row("well-formed", percent(self.format))
        table.add_row("questions", f"{self.questions:,} ({self.unusable} unusable, counted as wrong)")
        table.add_row("decoding", f"temperature {self.temperature:g}, top-p {self.top_p:g}")
        table.add_row("engine", self.engine)
        return table


def evaluate_run(model: str, *, benchmark: str, reporter: Reporter) -> EvalResult:
    """Evaluate `model`: `builtin`, a model folder, a hub id, or a run directory, whose own validation questions and
    settings are then used."""
    if benchmark not in BENCHMARKS:
        raise UsageError(f"--benchmark {benchmark}: must be one of {', '.join(BENCHMARKS)}")
    config, model_path = resolve_model(model, reporter)
    questions = load_questions(config.data, config.builtin, config.seed)
    accelerator = make_accelerator(config)
    parts = load_model_parts(config, model_path, accelerator, reporter)
    try:
        reward = AccuracyFormatReward(config.reward, parts.processing.prefill)
        validator = make_validator(config, questions, parts, reward, accelerator)
        if validator is None:
            raise DataError(f"{config.data.path} has no split {config.data.validation_split!r} to evaluate on")
        with reporter.phase("evaluating"):
            evaluation = validator.run(parts.engine)
    finally:
        parts.engine.close()
    metrics = evaluation.metrics
    prefix = "eval/kind/"
    return EvalResult(
        model=model_path,
        benchmark=benchmark,
        source=validator.samples[0].source,
        engine=parts.engine.name,
        temperature=config.eval.temperature,
        top_p=config.eval.top_p,
        questions=int(metrics["eval/questions"]),
        unusable=evaluation.unusable,
        accuracy=metrics["eval/accuracy"],
        accuracy_interval=(metrics["eval/accuracy_low"], metrics["eval/accuracy_high"]),
        format=metrics["eval/format"],
        by_kind={name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)},
        seconds=metrics["eval_seconds"],
    )


def resolve_model(model: str, reporter: Reporter) -> tuple[RunConfig, str]:
    """The configuration to evaluate with, and where the weights are."""
    run = RunDirectory(Path(model))
    if not run.config.is_file():
        return RunConfig().model_copy(update={"model": RunConfig().model.model_copy(update={"path": model})}), model
    checkpoint = newest_whole(run.path, reporter.warn)
    if checkpoint is None:
        raise DataError(f"{model} has no checkpoint to evaluate. Let the run write one, or name a model folder.")
    return read_resolved(run.config), str(checkpoint.folder)
