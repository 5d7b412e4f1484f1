"""What goes wrong in a run without ending it, counted; and when it does end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastrl_cli.errors import DivergedError
from fastrl_cli.reporting.metrics import FAULTS
from fastrl_cli.training.ranks import gather, total

if TYPE_CHECKING:
    from accelerate import Accelerator


class Faults:
    """Counts the faults of a step, and stops the run after too many non-finite steps in a row."""

    def __init__(self, max_non_finite_steps: int, warn: Callable[[str], None], accelerator: Accelerator) -> None:
        self._max_non_finite = max_non_finite_steps
        self._warn = warn
        self._accelerator = accelerator
        self._in_a_row = 0
        self._counts: Counter[str] = Counter()
        self._unsaid: list[str] = []

    def note(self, kind: str, text: str, count: int = 1, *, on_every_rank: bool = False) -> None:
        """Count a fault of this step, and say what it was: the first rank at once, others through it when the step
        ends. One that every rank meets is counted by the first alone."""
        if kind not in FAULTS:
            raise ValueError(f"unknown kind of fault: {kind}")
        if on_every_rank and not self._accelerator.is_main_process:
            return
        self._counts[kind] += count
        if self._accelerator.is_main_process:
            self._warn(text)
        else:
            self._unsaid.append(text)

    def updates(self, done: int, skipped: Sequence[str]) -> None:
        """Take the step's updates: how many were done, and a sentence for each that was skipped."""
        for text in skipped:
            self.note("skipped_steps", text, on_every_rank=True)
        if skipped:
            self._in_a_row += 1
        elif done:
            self._in_a_row = 0

    @property
    def is_diverging(self) -> bool:
        """True while the latest update was skipped."""
        return self._in_a_row > 0

    def stop_if_diverged(self) -> None:
        """Raises DivergedError where the step was one non-finite step too many in a row."""
        if self._in_a_row >= self._max_non_finite:
            raise DivergedError(
                f"{self._in_a_row} steps in a row had a non-finite loss or gradient. Lower optimizer.learning_rate, or "
                "look at the rollouts named in the warnings, in the run's rollouts/ folder."
            )

    def metrics(self) -> dict[str, float]:
        """`faults/*` of the step over all ranks, then start counting anew."""
        sums = total([self._counts[name] for name in FAULTS], self._accelerator)
        counted = {f"faults/{name}": float(value) for name, value in zip(FAULTS, sums, strict=True)}
        for text in gather(self._unsaid, self._accelerator):
            self._warn(text)
        self._counts.clear()
        self._unsaid = []
        return counted

    def state_dict(self) -> dict[str, int]:
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._in_a_row = state["in_a_row"]
