"""Generation replaced by what another run recorded, so that two trainers can be given the same rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastrl_cli.errors import DataError
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import Done, Generation, Sampling, ignore

if TYPE_CHECKING:
    import torch


class ReplayEngine:
    """See `Engine`. A response is found by its question and its seed, which is of one step, draw and place in the
    group: neither the order of the prompts nor the number of processes matters. It keeps the policy version it was made
    with."""

    name = "replay"
    trusted_logprobs = False
    """The recorded weights need not be the trainer's."""

    def __init__(self, run: Path) -> None:
        """`run`: the run directory whose `rollouts/step_*.jsonl` are served. Raises DataError where it has none, or
        where a line is not a rollout."""
        self.run = run
        self.policy_version = 0
        self.recorded = _read(run)

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        done: Done = ignore,
    ) -> list[list[Generation]]:
        """See `Engine.generate`. Raises DataError for a response that was not recorded."""
        found = [
            [self._find(prompt.sample.id, seed + index) for index in range(n)]
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        for place, generations in enumerate(found):
            done(place, generations)
        return found

    def _find(self, question: str, seed: int) -> Generation:
        found = self.recorded.get((question, seed))
        if found is None:
            known = any(recorded == question for recorded, _ in self.recorded)
            what = f"no response of question {question} with seed {seed}" if known else f"no question {question}"
            raise DataError(
                f"{self.run}: its rollouts hold {what}. A replay needs the recorded run's seed, data and batch "
                "settings, and no more steps or rollouts than it made."
            )
        return found

    def sync(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Recorded responses do not follow the weights."""
        self.policy_version = version

    def sleep(self) -> None:
        """Nothing is held on a device."""

    def wake(self) -> None:
        """See `sleep`."""

    def close(self) -> None:
        """See `sleep`."""


def _read(run: Path) -> dict[tuple[str, int], Generation]:
    paths = sorted((run / "rollouts").glob("step_*.jsonl"))
    if not paths:
        raise DataError(
            f"{run}: no rollouts/step_*.jsonl to replay. Give the directory of a run that was made with "
            "log.rollouts=true."
        )
    recorded = {}
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    fields = json.loads(line)
                    recorded[str(fields["question_id"]), int(fields["seed"])] = _generation(fields)
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{path}, line {number}: not a recorded rollout ({type(error).__name__}: {error}). "
                        "Record the run again, or remove the file."
                    ) from error
    return recorded


def _generation(fields: dict[str, Any]) -> Generation:
    if fields["finish_reason"] not in ("stop", "length") or len(fields["token_ids"]) != len(fields["logprobs"]):
        raise ValueError("finish_reason is not stop or length, or token_ids and logprobs differ in number")
    return Generation(
        token_ids=np.asarray(fields["token_ids"], dtype=np.int32),
        logprobs=np.asarray(fields["logprobs"], dtype=np.float32),
        finish_reason=fields["finish_reason"],
        policy_version=int(fields["policy_version"]),
    )
