"""The plan that `fastrl train --dry-run` prints: what a configuration will do, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from fastrl_cli.config.pruning import ARSConfig, NoPruningConfig
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.presets import find_preset
from fastrl_cli.data.sources import READERS, canonical, column_names, group_by_split, open_source
from fastrl_cli.errors import DataError
from fastrl_cli.models.load import check_model_folder
from fastrl_cli.rollout.select import engine_choice
from fastrl_cli.sampling.ars import rollout_count
from fastrl_cli.sampling.dynamic import expected_dead_groups
from fastrl_cli.sampling.questions import run_length, steps_per_epoch

ACCURACIES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
KEPT_SHARE = 0.38
"""Share of the rollouts that the paper's runs on Geometry3K keep."""
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Plan:
    """The document of `fastrl train --dry-run --json`. Numbers that depend on an unread data set are None."""

    algorithm: str
    model: str
    data: str
    engine: str
    engine_reason: str
    questions: int | None
    questions_per_step: int
    rollouts: int
    rollouts_per_step: int
    steps: int | None
    steps_per_epoch: int | None
    epochs: float | None
    updates_per_step: int
    """With a fixed size of an update: the number before pruning, which it can only lower."""
    optimizer_steps: int | None
    tokens_per_step: int
    """Upper bound of the generated tokens: every response as long as allowed."""
    tokens: int | None
    loss: str
    pruning: str
    adaptive: str
    rollouts_trace: list[tuple[int, int]] | None
    """(first step, n) as ARS would go if `KEPT_SHARE` of the rollouts were kept, all of them of one question."""
    dead_groups: dict[str, float]
    """Share of groups whose rollouts are all right or all wrong, by the accuracy p of the questions: p^G + (1-p)^G."""
    config: dict[str, Any]
    """Every setting, as `config.resolved.yaml` of the run would have it."""
    schema_version: int = SCHEMA_VERSION
    dry_run: bool = True

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        table = Table(title="plan: nothing was trained or written", title_justify="left", show_header=False)
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "algorithm", f"{self.algorithm}: {self.loss}"
        yield "model", self.model
        yield "data", f"{self.data}, training questions: {_number(self.questions)}"
        yield "engine", f"{self.engine}: {self.engine_reason}"
        yield "a step", f"{self.questions_per_step} questions × {self.rollouts} = {self.rollouts_per_step} rollouts"
        epochs = "" if self.epochs is None else f", {self.epochs:.3g} epochs of {self.steps_per_epoch}"
        yield "steps", f"{_number(self.steps)}{epochs}"
        yield "seed", str(self.config["seed"])
        yield "sampling", _settings(self.config["sampling"])
        yield "optimiser", "AdamW, " + _settings(self.config["optimizer"])
        yield "optimiser steps", f"{self.updates_per_step} a step, in all: {_number(self.optimizer_steps)}"
        yield "tokens generated", f"at most {self.tokens_per_step:,} a step, in all: {_number(self.tokens)}"
        yield "pruning", self.pruning
        yield "number of rollouts", self.adaptive
        shares = ", ".join(f"{share:.1%} at {accuracy}" for accuracy, share in self.dead_groups.items())
        yield "dead groups", f"expected share of groups all right or all wrong, by accuracy: {shares}"


def make_plan(config: RunConfig) -> Plan:
    """The plan of a valid configuration. Of local data it reads no more than the columns and the number of rows, of a
    model the names of its files; it writes nothing.

    Raises `DataError` for data or a model that are not there or lack what training needs.
    """
    check_model_folder(config.model.path)
    batch = config.batch
    questions = count_questions(config)
    length = None
    if questions is not None:
        length = run_length(questions, batch.questions_per_step, steps=batch.steps, epochs=batch.epochs)
    steps = length.steps if length else batch.steps
    per_epoch = steps_per_epoch(questions, batch.questions_per_step) if questions is not None else None
    generated = batch.questions_per_step * batch.rollouts
    rounds = config.algorithm.dynamic_sampling.max_rounds if config.algorithm.dynamic_sampling else 1
    tokens = generated * config.sampling.max_tokens * rounds
    updates = _updates(config, generated)
    trace = ars_trace(config, steps, length.epochs if length else None)
    engine, reason = engine_choice(config.engine)
    return Plan(
        algorithm=config.algorithm.name,
        model=config.model.path,
        data=config.data.path,
        engine=engine,
        engine_reason=reason,
        questions=questions,
        questions_per_step=batch.questions_per_step,
        rollouts=batch.rollouts,
        rollouts_per_step=generated,
        steps=steps,
        steps_per_epoch=per_epoch,
        epochs=steps / per_epoch if steps is not None and per_epoch is not None else None,
        updates_per_step=updates,
        optimizer_steps=None if steps is None else steps * updates,
        tokens_per_step=tokens,
        tokens=None if steps is None else steps * tokens,
        loss=_loss(config, updates),
        pruning=_pruning(config),
        adaptive=_adaptive(config, trace),
        rollouts_trace=trace,
        dead_groups={f"{p:g}": expected_dead_groups(p, batch.rollouts) for p in ACCURACIES},
        config=config.model_dump(mode="json"),
    )


def ars_trace(config: RunConfig, steps: int | None, epochs: Fraction | None) -> list[tuple[int, int]] | None:
    """The steps at which ARS would change n, were `KEPT_SHARE` of the rollouts kept on average and all of some
    question. None without ARS or without a number of steps."""
    if not isinstance(config.adaptive, ARSConfig) or isinstance(config.pruning, NoPruningConfig) or steps is None:
        return None
    n0 = config.batch.rollouts
    count = rollout_count(config.adaptive, n0=n0, total_steps=steps, total_epochs=epochs, pruning=True)
    trace = [(1, n0)]
    for step in range(1, steps + 1):
        n = count.next_n()
        if n != trace[-1][1]:
            trace.append((step, n))
        full = max(1, round(100 * (KEPT_SHARE * n - 1) / (n - 1))) if n > 1 else 100
        count.observe(step, [n] * full + [1] * (100 - full))
    return trace


def count_questions(config: RunConfig) -> int | None:
    """Rows of the training split, its columns checked; None where only reading the data would tell. Raises
    `DataError`."""
    data = config.data
    if data.path == "builtin":
        return min(config.builtin.train_size, data.limit or config.builtin.train_size)
    path = Path(data.path).expanduser()
    source = open_source(data)
    if not path.exists():
        return None
    if canonical(data.train_split) not in map(canonical, source.splits):
        raise DataError(
            f"{source.where}: there is no split {data.train_split!r}. The splits are {', '.join(source.splits)}. "
            "data.train_split=NAME chooses the one to train on."
        )
    files = (path,) if path.is_file() else _files_of(path / (data.name or ""), data.train_split)
    counts = [_count_rows(file) for file in files]
    rows = None if None in counts else sum(count for count in counts if count is not None)
    if rows == 0:
        raise DataError(f"{source.where}: the split {data.train_split!r} has no rows. Give another data.path.")
    columns = column_names(files[0])
    if columns is not None:
        find_preset(sorted(columns), data.columns, {}, (), str(files[0]))
    return None if rows is None else min(rows, data.limit or rows)


def _number(value: int | None) -> str:
    return "unknown before the data are read" if value is None else f"{value:,}"


def _settings(section: Mapping[str, Any]) -> str:
    """The plain settings of a section in one line, those that are off left out."""
    shown = {name: value for name, value in section.items() if value is not None and not isinstance(value, dict)}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _files_of(folder: Path, split: str) -> tuple[Path, ...]:
    groups = group_by_split(folder)
    return next(files for name, files in groups.items() if canonical(name) == canonical(split))


def _count_rows(file: Path) -> int | None:
    """Rows of a data file, as far as they can be told without reading it whole: not those of one JSON document."""
    if READERS.get(file.suffix.lower()) == "parquet":
        import pyarrow.parquet

        try:
            return int(pyarrow.parquet.read_metadata(file).num_rows)
        except (OSError, ValueError) as error:
            raise DataError(f"{file} is not a parquet file: {error}. Replace it, or give another data.path.") from error
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        with file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    return None


def _updates(config: RunConfig, generated: int) -> int:
    size = config.optimizer.mini_batch_rollouts
    return config.optimizer.updates_per_batch or -(-generated // (size or generated))


def _loss(config: RunConfig, updates: int) -> str:
    algorithm = config.algorithm
    kl = algorithm.kl.coefficient
    return ", ".join(
        (
            f"{algorithm.ratio} ratio clipped to 1 - {algorithm.clip_low:g} .. 1 + {algorithm.clip_high:g}",
            "no dual clip" if algorithm.dual_clip is None else f"dual clip {algorithm.dual_clip:g}",
            f"{algorithm.aggregation} over the {algorithm.denominator} rollouts",
            f"KL {algorithm.kl.estimator} × {kl:g}" if kl else "no KL, no reference model",
            "dynamic sampling" if algorithm.dynamic_sampling else "no dynamic sampling",
            *(["one update a batch, so the ratio is 1 and nothing is clipped"] if updates == 1 else []),
        )
    )


def _pruning(config: RunConfig) -> str:
    words = _settings(config.pruning.model_dump(exclude={"type"}))
    return f"{config.pruning.type} ({words})" if words else config.pruning.type


def _adaptive(config: RunConfig, trace: list[tuple[int, int]] | None) -> str:
    if not isinstance(config.adaptive, ARSConfig):
        return f"fixed at {config.batch.rollouts}"
    if trace is None:
        return f"ars, from {config.batch.rollouts} down to at least {config.adaptive.n_min}"
    path = ", then ".join(f"{n} from step {step}" for step, n in trace)
    return f"ars; if {KEPT_SHARE:.0%} of the rollouts are kept: {path}"
