"""Groups for the tests: made by hand, drawn by hypothesis, and judged by a slow restatement of the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from fastrl_cli.data.sample import Draw
from fastrl_cli.pruning import Group

property_test = settings(deadline=None, max_examples=80)


def advantages_of(rewards: Sequence[float]) -> np.ndarray:
    values = np.asarray(rewards, np.float64)
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return (values - values.mean()) / (spread + 1e-6) if spread else np.zeros(len(values))


def make_group(
    responses: Sequence[Sequence[int]],
    rewards: Sequence[float],
    *,
    question: str = "toy:0",
    number: int = 0,
    advantages: Sequence[float] | None = None,
    keys: Sequence[object] | None = None,
) -> Group:
    return Group(
        draw=Draw(question, number),
        token_ids=[np.asarray(tokens, np.int32) for tokens in responses],
        rewards=np.asarray(rewards, np.float64),
        advantages=advantages_of(rewards) if advantages is None else np.asarray(advantages, np.float64),
        keys=keys,
    )


@st.composite
def groups(draw: st.DrawFn, question: str = "toy:0", min_size: int = 1, max_size: int = 10) -> Group:
    n = draw(st.integers(min_size, max_size))
    # A vocabulary of few tokens, so that look-alikes and duplicates are common; bytes, because they are drawn fast.
    vocabulary = draw(st.sampled_from([4, 10, 31]))
    responses = [[byte % vocabulary for byte in draw(st.binary(max_size=12))] for _ in range(n)]
    return make_group(responses, [byte % 4 / 2 for byte in draw(st.binary(min_size=n, max_size=n))], question=question)


@st.composite
def batches(draw: st.DrawFn, max_questions: int = 6) -> list[Group]:
    count = draw(st.integers(1, max_questions))
    return [draw(groups(question=f"toy:{row}", max_size=6)) for row in range(count)]


def ngrams(tokens: Sequence[int], ngram: int = 1) -> set[tuple[int, ...]]:
    return {tuple(int(t) for t in tokens[i : i + ngram]) for i in range(len(tokens) - ngram + 1)}


def distance(left: Sequence[int], right: Sequence[int], ngram: int = 1) -> Fraction:
    a, b = ngrams(left, ngram), ngrams(right, ngram)
    return 1 - Fraction(len(a & b), len(a | b)) if a | b else Fraction(0)
