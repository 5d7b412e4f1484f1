"""`fastrl prune-analyze`: what selection kept of recorded rollouts, and why."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from fastrl_cli.errors import DataError
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.reporting.wording import percent

NEEDED = ("step", "question_id", "draw", "reward", "kept", "reason", "token_ids")
STEPS_SHOWN = 12

Record = Mapping[str, Any]


@dataclass(frozen=True)
class StepCounts:
    """One row of the table: the rollouts of a step, or of several steps together."""

    step: str
    questions: int
    rollouts_per_question: float
    generated: int
    kept: int
    dead_groups: int
    """Groups whose rewards are all equal."""
    tokens_generated: int
    tokens_kept: int


@dataclass(frozen=True)
class Analysis:
    """The document of `fastrl prune-analyze --json`."""

    source: str
    steps: list[StepCounts]
    total: StepCounts
    by_reward: dict[str, tuple[int, int]]
    """Reward: (generated, kept)."""
    reasons: dict[str, int]
    skipped_lines: int
    """Lines that could not be read: a torn last line, other schemas."""
    schema_version: int = 1

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        return Group(self._steps_table(), self._reward_table(), self._reasons_line())

    def _steps_table(self) -> Table:
        stride = -(-len(self.steps) // STEPS_SHOWN) or 1
        some = f", one step in {stride}" if stride > 1 else ""
        table = Table(title=f"rollouts of {self.source}{some}", title_justify="left")
        for name in ("step", "questions", "n", "generated", "kept", "kept share", "dead groups", "token share"):
            table.add_column(name, justify="right")
        for row in [*self.steps[::stride], self.total]:
            table.add_row(
                row.step,
                f"{row.questions:,}",
                f"{row.rollouts_per_question:.1f}",
                f"{row.generated:,}",
                f"{row.kept:,}",
                percent(row.kept / row.generated),
                f"{row.dead_groups:,}",
                percent(row.tokens_kept / max(row.tokens_generated, 1)),
            )
        return table

    def _reward_table(self) -> Table:
        table = Table(title="by reward", title_justify="left")
        for name in ("reward", "generated", "kept", "kept share"):
            table.add_column(name, justify="right")
        for reward, (generated, kept) in self.by_reward.items():
            table.add_row(reward, f"{generated:,}", f"{kept:,}", percent(kept / generated))
        return table

    def _reasons_line(self) -> str:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.items())
        skipped = f"\n{self.skipped_lines} lines could not be read." if self.skipped_lines else ""
        return f"Why each rollout stayed or went: {reasons}.{skipped}"


def analyze(source: Path, *, reporter: Reporter) -> Analysis:
    """Counts over a run directory or one rollouts file. Raises DataError where there is nothing to read."""
    files = rollout_files(source)
    records: list[Record] = []
    skipped = 0
    for file in files:
        for line in read_lines(file):
            if line is None:
                skipped += 1
            else:
                records.append(line)
    if not records:
        raise DataError(f"{source}: none of its lines has the fields of a rollout: {', '.join(NEEDED)}")
    if skipped:
        reporter.warn(f"{source}: {skipped} lines could not be read and are left out")
    return count(records, str(source), skipped)


def rollout_files(source: Path) -> list[Path]:
    """The rollouts files of a run directory, or the file itself."""
    if source.is_file():
        return [source]
    files = sorted((source / "rollouts").glob("step_*.jsonl"))
    if not files:
        raise DataError(
            f"{source}: no rollouts there. Name a run directory with a folder rollouts/, or a rollouts file."
        )
    return files


def read_lines(file: Path) -> Iterator[Record | None]:
    """The records of a file; None for a line that is not one."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                yield None
                continue
            whole = isinstance(record, dict) and all(name in record for name in NEEDED)
            yield record if whole and isinstance(record["reward"], (int, float)) else None


def count(records: Sequence[Record], source: str, skipped: int) -> Analysis:
    """All counts of the records."""
    by_step: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_step[int(record["step"])].append(record)
    rewards: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        rewards[float(record["reward"])].append(record)
    return Analysis(
        source=source,
        steps=[count_rollouts(str(step), rows) for step, rows in sorted(by_step.items())],
        total=count_rollouts("all", records),
        by_reward={f"{reward:g}": (len(rows), kept_of(rows)) for reward, rows in sorted(rewards.items())},
        reasons=dict(Counter(str(record["reason"]) for record in records).most_common()),
        skipped_lines=skipped,
    )


def kept_of(records: Sequence[Record]) -> int:
    return sum(bool(record["kept"]) for record in records)


def count_rollouts(step: str, records: Sequence[Record]) -> StepCounts:
    """One row. Groups are told apart by step, question and draw."""
    groups: dict[tuple[Any, Any, Any], set[float]] = defaultdict(set)
    for record in records:
        groups[record["step"], record["question_id"], record["draw"]].add(float(record["reward"]))
    return StepCounts(
        step=step,
        questions=len(groups),
        rollouts_per_question=len(records) / len(groups),
        generated=len(records),
        kept=kept_of(records),
        dead_groups=sum(len(rewards) == 1 for rewards in groups.values()),
        tokens_generated=sum(len(record["token_ids"]) for record in records),
        tokens_kept=sum(len(record["token_ids"]) for record in records if record["kept"]),
    )
