"""The rollouts file: every rollout of a step, one JSON line each, in `rollouts/step_000001.jsonl`.

A line holds `step`, `question_id`, `draw`, `index` (place in the group), `source`, `row`, `question`, `gold`,
`pictures` (number), `columns` (every other column of the data set), `seed`, `policy_version`, `token_ids`, `logprobs`
(the engine's), `text`, `finish_reason`, `reward` (total), `reward_parts`, `reward_details`, `accuracy`, `advantage`,
`kept`, `reason`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastrl_cli.pruning import Selection
from fastrl_cli.reporting.jsonable import dump_line
from fastrl_cli.rollout.rollout import Rollout
from fastrl_cli.training.groups import RolloutGroup, scored


def rollouts_path(run_dir: Path, step: int) -> Path:
    """Where the rollouts of a step are."""
    return run_dir / "rollouts" / f"step_{step:06d}.jsonl"


def rollout_record(rollout: Rollout, step: int, *, kept: bool, reason: str) -> dict[str, Any]:
    """One line of the rollouts file."""
    sample, generation, reward = rollout.sample, rollout.generation, scored(rollout)
    return {
        "step": step,
        "question_id": rollout.draw.question_id,
        "draw": rollout.draw.number,
        "index": rollout.index,
        "source": sample.source,
        "row": sample.row,
        "question": sample.question,
        "gold": sample.answer,
        "pictures": len(sample.images),
        "columns": dict(sample.columns),
        "seed": rollout.seed,
        "policy_version": generation.policy_version,
        "token_ids": generation.token_ids.tolist(),
        "logprobs": generation.logprobs.tolist(),
        "text": rollout.text,
        "finish_reason": generation.finish_reason,
        "reward": reward.total,
        "reward_parts": dict(reward.parts),
        "reward_details": dict(reward.details),
        "accuracy": reward.accuracy,
        "advantage": rollout.advantage,
        "kept": kept,
        "reason": reason,
    }


def write_rollouts(run_dir: Path, step: int, groups: Sequence[RolloutGroup], selection: Selection) -> None:
    """Write a step's rollouts, beside and then renamed, so that a file is whole or not there."""
    path = rollouts_path(run_dir, step)
    beside = path.with_suffix(".tmp")
    with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for group, reasons in zip(groups, selection.reasons, strict=True):
            for rollout, reason in zip(group.rollouts, reasons, strict=True):
                file.write(dump_line(rollout_record(rollout, step, kept=reason.keeps, reason=str(reason))))
    os.replace(beside, path)


def remove_after(run_dir: Path, step: int) -> None:
    """Remove the rollouts of steps after `step`, which a resumed run makes again."""
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        if int(path.stem.removeprefix("step_")) > step:
            path.unlink()
