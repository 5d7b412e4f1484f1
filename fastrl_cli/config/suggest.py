"""The nearest known name for one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from fastrl_cli.config.schema import children, field_paths

SURE = 0.5
"""From this likeness on, one name is enough; below it, the section's other names are listed too."""

OTHER_NAMES: Mapping[str, str] = {
    "algorithm.beta": "algorithm.kl.coefficient",
    "algorithm.epsilon": "algorithm.clip_low",
    "algorithm.epsilon_high": "algorithm.clip_high",
    "algorithm.kl_coef": "algorithm.kl.coefficient",
    "algorithm.loss_type": "algorithm.aggregation",
    "batch.n": "batch.rollouts",
    "batch.num_generations": "batch.rollouts",
    "batch.train_batch_size": "batch.questions_per_step",
    "optimizer.lr": "optimizer.learning_rate",
    "pruning.ratio": "pruning.tau",
    "pruning.threshold": "pruning.tau",
    "sampling.max_completion_length": "sampling.max_tokens",
    "sampling.max_new_tokens": "sampling.max_tokens",
}
"""What other trainers call it: good for a suggestion only."""


def unknown_key(path: str) -> str:
    """A sentence about a dotted name that does not exist, with the nearest one that does."""
    section, _, leaf = path.rpartition(".")
    home, home_likeness = _nearest_section(section)
    if not section or home_likeness < SURE:
        twins = [known for known in _known() if _leaf(known) == leaf]
        if twins:
            return f"unknown `{path}`; did you mean {_either(_real(twins)[:3])}?"
    names = [known for known in _known() if known.rpartition(".")[0] == home]
    nearest = max(names, key=lambda known: likeness(leaf, _leaf(known)))
    sentence = f"unknown `{path}`; did you mean {_either(_real([nearest]))}?"
    if likeness(leaf, _leaf(nearest)) >= SURE:
        return sentence
    where = f"`{home}`" if home else "The configuration"
    return f"{sentence} {where} has {', '.join(map(_leaf, children(home)))}."


def likeness(left: str, right: str) -> float:
    """1 for equal strings, 0 for strings without anything in common."""
    return difflib.SequenceMatcher(None, left, right).ratio()


def _known() -> tuple[str, ...]:
    return (*field_paths(), *OTHER_NAMES)


def _real(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(OTHER_NAMES.get(name, name) for name in names))


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _nearest_section(section: str) -> tuple[str, float]:
    sections = ["", *(path for path in field_paths() if children(path))]
    nearest = max(sections, key=lambda known: likeness(section, known))
    return nearest, likeness(section, nearest)


def _either(names: Iterable[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}" if first else last
