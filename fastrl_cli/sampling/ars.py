"""How many rollouts each question of a step gets: always the same number, or ARS, adaptive rollout sampling (FastRL
section 3.2, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

from fastrl_cli.config.pruning import ARSConfig, FixedRolloutsConfig, RolloutCountConfig
from fastrl_cli.errors import UsageError


class RolloutCount(Protocol):
    """Decides the number of rollouts of each question, step by step."""

    warning: str | None
    """What a person should know about the settings, for the caller to print."""

    def next_n(self) -> int:
        """Rollouts of each question in the coming step."""
        ...

    def observe(self, step: int, counts: Sequence[int]) -> None:
        """Takes the kept rollouts of each question of a step (counted from 1), the alignment fill included."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes from step to step, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class FixedRollouts:
    """The same number in every step."""

    warning: str | None = None

    def __init__(self, n0: int) -> None:
        self._n0 = n0

    def next_n(self) -> int:
        return self._n0

    def observe(self, step: int, counts: Sequence[int]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def growth(progress: float, mean_kept: float, max_kept: float) -> float:
    """G of a window (FastRL equation 10, Algorithm 1): the mean and the largest kept count of a question, weighted by
    the progress alpha = step / total steps, 0 to 1."""
    return progress * mean_kept + (1 - progress) * max_kept


def target_rollouts(n0: int, reference: float, current: float) -> float:
    """n before rounding: n0 less what G (`current`) has fallen below G_ref (`reference`), never above n0."""
    return min(n0 - (reference - current), n0)


class ARS:
    """One n for all questions of a step. It shrinks from `n0`, at least to `n_min`, as fewer rollouts survive pruning.

    A window is a data epoch, or `config.window_steps` where `total_epochs` is null. The first step of a window still
    counts in the one before, which then closes; the new n applies from the next step. `total_epochs` may be a fraction
    (20 steps at 8 an epoch are 5/2). Raises `UsageError` where `n_min` is above `n0`.
    """

    warning: str | None

    def __init__(
        self, config: ARSConfig, *, n0: int, total_steps: int, total_epochs: Fraction | int | None, pruning: bool = True
    ) -> None:
        if config.n_min > n0:
            raise UsageError(
                f"adaptive.n_min = {config.n_min} is above batch.rollouts = {n0}. Set adaptive.n_min to at most {n0}."
            )
        self._config = config
        self._n0 = n0
        self._total_steps = total_steps
        self._total_epochs = None if total_epochs is None else Fraction(total_epochs)
        self._pruning = pruning
        self._reference: float | None = None
        self._current: float | None = None
        self._means: list[float] = []
        self._maxima: list[int] = []
        self._window = 0
        self.warning = (
            None
            if pruning
            else f"adaptive.type = ars has no effect without pruning: every question gets {n0} rollouts. "
            "Set pruning.type, or adaptive.type = fixed."
        )

    def next_n(self) -> int:
        """`n_min` <= n <= `n0`. Halves round to even, as in the authors' code."""
        if self._reference is None or self._current is None:
            return self._n0
        return max(round(target_rollouts(self._n0, self._reference, self._current)), self._config.n_min)

    def observe(self, step: int, counts: Sequence[int]) -> None:
        """A step without groups only moves the window on."""
        if not self._pruning:
            return
        if counts:
            self._means.append(sum(counts) / len(counts))
            self._maxima.append(max(counts))
        window = self._window_of(step)
        if window > self._window:
            self._window = window
            self._close_window(step)

    def state_dict(self) -> dict[str, Any]:
        return {
            "total_steps": self._total_steps,
            "total_epochs": None if self._total_epochs is None else str(self._total_epochs),
            "reference": self._reference,
            "current": self._current,
            "means": list(self._means),
            "maxima": list(self._maxima),
            "window": self._window,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The length of the run comes from the state too, so that windows stay where they were; steps beyond it count
        as its end."""
        self._total_steps = state["total_steps"]
        self._total_epochs = None if state["total_epochs"] is None else Fraction(state["total_epochs"])
        self._reference, self._current = state["reference"], state["current"]
        self._means, self._maxima = list(state["means"]), list(state["maxima"])
        self._window = state["window"]

    def _window_of(self, step: int) -> int:
        if self._total_epochs is None:
            return (step - 1) // self._config.window_steps
        return int((step - 1) * self._total_epochs // self._total_steps)

    def _close_window(self, step: int) -> None:
        if not self._means:
            return
        mean_kept = sum(self._means) / len(self._means)
        step_mean = self._config.max_stat == "step_mean"
        max_kept = sum(self._maxima) / len(self._maxima) if step_mean else max(self._maxima)
        self._current = growth(min(step / self._total_steps, 1), mean_kept, max_kept)
        if self._reference is None:
            self._reference = (mean_kept + max_kept) / 2
        self._means, self._maxima = [], []


def rollout_count(
    config: RolloutCountConfig, *, n0: int, total_steps: int, total_epochs: Fraction | int | None, pruning: bool
) -> RolloutCount:
    """The controller that the config asks for; see `ARS` for the arguments."""
    if isinstance(config, FixedRolloutsConfig):
        return FixedRollouts(n0)
    return ARS(config, n0=n0, total_steps=total_steps, total_epochs=total_epochs, pruning=pruning)
