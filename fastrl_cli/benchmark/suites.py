"""What is compared with what: each suite is a list of contenders on one workload, the baseline first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastrl_cli.benchmark.contender import Contender
from fastrl_cli.config.load import load_config
from fastrl_cli.config.run import RunConfig

WIDE_PICTURES = ("builtin.picture_size=448", "batch.questions_per_step=8", "batch.rollouts=8", "sampling.max_tokens=64")
"""256 image tokens in each prompt, 8 questions × 8 rollouts: where the prompt is long, as that of a real question."""
PLAIN = ("pruning={type: none}", "adaptive={type: fixed}")
NO_KL = ("algorithm.kl.coefficient=0",)
PAPER_SHAPE = (
    "model.layout=rows", "algorithm.old_logprobs=recompute", "optimizer.updates_per_batch=4",
)  # fmt: skip
"""As the paper's own comparison computes: each rollout with a prompt of its own, and a pass for the old
log-probabilities."""


@dataclass(frozen=True)
class Suite:
    """Contenders that take turns."""

    title: str
    contenders: Sequence[Contender]
    baseline: str
    fixed_length: bool = False
    """Every response has all of its tokens, so that no drift of lengths leaks into the seconds."""
    evaluates: bool = False
    """Accuracy before and after; for pictures of the size that the model knows."""


def contender(name: str, *overrides: str, algorithm: str = "grpo") -> Contender:
    """The embedded default with other settings."""
    return Contender(name, configured(algorithm, *overrides))


def configured(algorithm: str, *overrides: str) -> RunConfig:
    """The embedded default of an algorithm."""
    return load_config(algorithm=algorithm, overrides=overrides)


def quick() -> list[Suite]:
    """GRPO with and without FastRL, on long prompts and at the model's own picture size."""
    pairs = [("grpo", PLAIN), ("fastrl", ())]
    return [
        Suite("448 × 448 pictures", [contender(name, *WIDE_PICTURES, *o) for name, o in pairs], "grpo"),
        Suite("84 × 84 pictures, the embedded default", [contender(n, *o) for n, o in pairs], "grpo", evaluates=True),
    ]


def factors() -> list[Suite]:
    """What each part of the program contributes, added one by one to plain GRPO on separate rows."""
    steps: Mapping[str, tuple[str, ...]] = {
        "separate rows": (*PLAIN, "engine.type=transformers", "model.layout=rows"),
        "+ shared prefix": (*PLAIN, "engine.type=transformers", "model.layout=shared_prefix"),
        "+ vllm": (*PLAIN, "engine.type=auto"),
        "+ mdap": ("adaptive={type: fixed}", "engine.type=auto"),
        "+ ars": ("engine.type=auto",),
    }
    contenders = [contender(name, *WIDE_PICTURES, *overrides) for name, overrides in steps.items()]
    return [Suite("448 × 448 pictures, parts added one by one", contenders, "separate rows")]


def paper() -> list[Suite]:
    """Each algorithm with and without FastRL as the paper compares them: separate rows, a pass for the old
    log-probabilities, four optimiser steps a batch on both sides, and GRPO's reference model."""
    return [
        Suite(
            f"{algorithm}, in the paper's shape",
            [
                contender(algorithm, *WIDE_PICTURES, *PAPER_SHAPE, *PLAIN, algorithm=algorithm),
                contender(f"{algorithm}+fastrl", *WIDE_PICTURES, *PAPER_SHAPE, algorithm=algorithm),
            ],
            algorithm,
        )
        for algorithm in ("grpo", "dapo", "gspo")
    ]


def peer_trl() -> list[Suite]:
    """TRL's GRPO against ours: generation by transformers on both sides, and each at its best."""
    settings = {
        "no KL": (*NO_KL, "optimizer.updates_per_batch=1"),
        "KL 0.01, 4 updates a batch": ("algorithm.kl.coefficient=0.01", "optimizer.updates_per_batch=4"),
    }
    suites = []
    for title, overrides in settings.items():
        base = (*WIDE_PICTURES, *overrides)
        trl = Contender("trl", configured("grpo", *base, *PLAIN), "fastrl_cli.benchmark.trl_worker")
        ours = [
            contender("grpo, transformers", *base, *PLAIN, "engine.type=transformers"),
            contender("grpo", *base, *PLAIN),
            contender("fastrl", *base),
        ]
        suites.append(Suite(f"TRL, {title}", [trl, *ours], "trl", fixed_length=True))
    return suites


SUITES: Mapping[str, Callable[[], list[Suite]]] = {"quick": quick, "factors": factors, "paper": paper}
PEERS: Mapping[str, Callable[[], list[Suite]]] = {"trl": peer_trl}
