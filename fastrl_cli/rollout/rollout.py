"""What an engine makes (`Generation`), and what the loop does with it (`Rollout`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastrl_cli.data.sample import Draw, Sample

if TYPE_CHECKING:
    import torch

    from fastrl_cli.models.prompt import Prompt

TokenIds: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float32]
FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, shared by the engine and the trainer so that both speak of one distribution:
    `softmax((z + bias) / temperature)`, where the bias of `suppressed` tokens is minus infinity."""

    temperature: float = 1.0
    """0 is greedy; log-probabilities are then those of temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    max_tokens: int = 64
    suppressed: tuple[int, ...] = ()
    """Vision tokens: a policy that emits one would break its own training pass."""
    stop: tuple[int, ...] = ()
    """End tokens. The one that ended a response is its last token."""

    @property
    def logprobs_are_exact(self) -> bool:
        """False where top-p or top-k renormalise what the trainer does not."""
        return self.temperature > 0 and self.top_p >= 1.0 and self.top_k == 0


@dataclass(frozen=True)
class Generation:
    """One response as an engine returns it."""

    token_ids: TokenIds
    """(T,), the end token included."""
    logprobs: Floats
    """(T,), log-probability of each token under the processed distribution of `Sampling`."""
    finish_reason: FinishReason
    policy_version: int


@dataclass(frozen=True)
class Reward:
    """The named parts of a reward; `total` is their sum. `accuracy` is 0 or 1 where the question has a gold answer."""

    parts: Mapping[str, float]
    total: float
    accuracy: float
    details: Mapping[str, str] = field(default_factory=dict)
    """What the grader saw: the extracted answer, the rule that matched, an error."""


@dataclass(eq=False)
class Rollout:
    """A response in training. It carries its sample, so that a reward cannot see another question's answer."""

    sample: Sample
    draw: Draw
    index: int
    """Place in its group, 0..n-1."""
    generation: Generation
    text: str
    seed: int
    reward: Reward | None = None
    advantage: float = 0.0

    @property
    def length(self) -> int:
        return len(self.generation.token_ids)


Done: TypeAlias = Callable[[int, list[Generation]], None]


def ignore(place: int, generations: list[Generation]) -> None:
    """A `Done` for who waits for all."""


class Engine(Protocol):
    """Generates responses with the newest weights it was given."""

    name: str
    policy_version: int
    trusted_logprobs: bool
    """True where the engine's log-probabilities equal the trainer's to float32 rounding."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        done: Done = ignore,
    ) -> list[list[Generation]]:
        """`n` responses to each prompt, in the order of `prompts`; `done(place, responses)` is told of each prompt as
        soon as it has all of them. Response k of prompt i is drawn with the seed
        `seeds[i] + k`, so that it does not depend on which other prompts are asked. Another batching still rounds
        log-probabilities differently, which may once in a long while tip a draw; the same call gives the same bits in
        the transformers engine on a CPU."""
        ...

    def sync(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Take the policy's new weights (names as the model's `state_dict`), and forget every cache made with the
        old."""
        ...

    def sleep(self) -> None:
        """Give the device's memory to the update."""
        ...

    def wake(self) -> None: ...

    def close(self) -> None: ...
