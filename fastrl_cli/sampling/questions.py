"""Which questions come next: seeded random epochs over the data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.errors import DataError, UsageError


@dataclass(frozen=True)
class RunLength:
    """How long a run is."""

    steps: int
    epochs: Fraction | None
    """Null where the run ends within its first epoch, so that there is no epoch to go by."""


def steps_per_epoch(questions: int, questions_per_step: int) -> int:
    """Full steps that a data set gives; 1 where it is smaller than a step."""
    return max(questions // questions_per_step, 1)


def run_length(questions: int, questions_per_step: int, *, steps: int | None, epochs: int) -> RunLength:
    """Steps of the run, `steps` or what `epochs` gives, and the epochs that they are."""
    per_epoch = steps_per_epoch(questions, questions_per_step)
    total = epochs * per_epoch if steps is None else steps
    return RunLength(total, Fraction(total, per_epoch) if total > per_epoch else None)


class QuestionStream:
    """An endless stream of question indices, epoch after epoch, each in a random order of its own.

    An epoch leaves out the last questions of its order that do not fill a step; a data set smaller than a step is used
    whole, again and again. The order depends on `seed` and the epoch alone. Raises `DataError` without questions.
    """

    def __init__(self, questions: int, questions_per_step: int, *, seed: int, shuffle: bool = True) -> None:
        if questions < 1:
            raise DataError("The training data has no usable question. Check data.path, data.train_split, data.limit.")
        self._setting = {
            "questions": questions,
            "questions_per_step": questions_per_step,
            "seed": seed,
            "shuffle": shuffle,
        }
        self._questions = questions
        self._per_epoch = questions // questions_per_step * questions_per_step or questions
        self._seed = seed
        self._shuffle = shuffle
        self._drawn = 0
        self._order = self._order_of(0)

    @property
    def drawn(self) -> int:
        """Questions drawn over the whole run."""
        return self._drawn

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next question belongs to, from 0."""
        return self._drawn // self._per_epoch

    def take(self, k: int) -> list[tuple[int, int]]:
        """The next `k` draws: (index of the question, number of the draw over the whole run)."""
        draws = []
        for number in range(self._drawn, self._drawn + k):
            epoch, place = divmod(number, self._per_epoch)
            if place == 0:
                self._order = self._order_of(epoch)
            draws.append((int(self._order[place]), number))
        self._drawn += k
        return draws

    def state_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"drawn": self._drawn, **self._setting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises `UsageError` where the state belongs to another data set, batch or seed: the stream would repeat some
        questions and skip others."""
        for name, value in self._setting.items():
            if state[name] != value:
                raise UsageError(
                    f"The checkpoint was made with {name} = {state[name]}, this run has {value}. "
                    "Resume with the data and settings of the run's config.resolved.yaml."
                )
        self._drawn = state["drawn"]
        self._order = self._order_of(self.epoch)

    def _order_of(self, epoch: int) -> NDArray[np.intp]:
        """(questions,) order of an epoch. Sorts raw Philox numbers: unlike `Generator.permutation`, numpy promises that
        they stay the same in later versions."""
        if not self._shuffle:
            return np.arange(self._questions)
        raw = np.random.Philox(np.random.SeedSequence([self._seed, epoch])).random_raw(self._questions)
        return np.argsort(raw, kind="stable")
