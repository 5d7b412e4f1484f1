"""The rollouts file: every rollout of a step, one JSON line each, in `rollouts/step_000001.jsonl`.

A line holds `step`, `question_id`, `draw`, `index` (place in the group), `source`, `row`, `question`, `gold`,
`pictures` (number), `columns` (every other column of the data set), `seed`, `policy_version`, `token_ids`, `logprobs`
(the engine's), `text`, `finish_reason`, `reward` (total), `reward_parts`, `reward_details`, `accuracy`, `advantage`,
`kept`, `reason` (the selector's, or `set_aside` for a group that dynamic sampling left out of the batch).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastrl_cli.reporting.jsonable import dump_line
from fastrl_cli.rollout.rollout import Rollout
from fastrl_cli.training.groups import all_rollouts, scored

if TYPE_CHECKING:
    from fastrl_cli.training.loop import Step

SET_ASIDE = "set_aside"


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


def write_rollouts(run_dir: Path, number: int, step: Step) -> None:
    """Write the rollouts of step `number`, beside and then renamed, so that a file is whole or not there."""
    path = rollouts_path(run_dir, number)
    beside = path.with_suffix(".tmp")
    with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for group, reasons in zip(step.groups, step.selection.reasons, strict=True):
            for rollout, reason in zip(group.rollouts, reasons, strict=True):
                file.write(dump_line(rollout_record(rollout, number, kept=reason.keeps, reason=str(reason))))
        for rollout in all_rollouts(step.set_aside):
            file.write(dump_line(rollout_record(rollout, number, kept=False, reason=SET_ASIDE)))
    os.replace(beside, path)


def remove_after(run_dir: Path, step: int) -> None:
    """Remove the rollouts of steps after `step`, which a resumed run makes again."""
    for path in (run_dir / "rollouts").glob("step_*.jsonl"):
        number = path.stem.removeprefix("step_")
        if number.isdecimal() and int(number) > step:
            path.unlink()
