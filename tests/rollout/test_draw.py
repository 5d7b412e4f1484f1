"""Drawing tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastrl_cli.rollout.draw import draw_tokens, processed_logprobs, uniforms
from fastrl_cli.rollout.rollout import Sampling

NONE = torch.tensor([], dtype=torch.long)


def test_a_row_of_uniform_numbers_depends_on_its_seed_alone() -> None:
    together, alone = uniforms([5, 9, 5], 40), uniforms([9], 40)
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[0], together[2])
    assert not torch.equal(together[0], together[1])
    assert torch.equal(uniforms([9], 10)[0], alone[0, :10])


def test_drawn_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0])
    expected = torch.softmax(logits / 0.7, 0)
    uniform = uniforms(range(20_000), 1)[:, 0]
    tokens, logprobs = draw_tokens(logits.expand(20_000, -1), uniform, Sampling(temperature=0.7), NONE)
    found = torch.bincount(tokens, minlength=4) / 20_000
    assert torch.allclose(found, expected, atol=4 * 0.5 / math.sqrt(20_000))
    assert torch.allclose(logprobs, expected.log()[tokens])


def test_suppressed_tokens_have_no_probability_and_the_rest_all_of_it() -> None:
    logits = torch.tensor([[100.0, 0.0, 1.0, 100.0]])
    logprobs = processed_logprobs(logits, Sampling(temperature=1.3), torch.tensor([0, 3]))
    assert logprobs[0, [0, 3]].tolist() == [-math.inf, -math.inf]
    assert torch.allclose(logprobs[0, 1:3], torch.log_softmax(torch.tensor([0.0, 1.0]) / 1.3, 0))


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-24])
def test_the_ends_of_the_unit_interval_do_not_hit_tokens_without_probability(uniform: float) -> None:
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([0, 1, 49_998, 49_999])
    tokens, logprobs = draw_tokens(logits, torch.tensor([uniform]), Sampling(), edges)
    assert int(tokens) == (2 if uniform == 0 else 49_997)
    assert torch.isfinite(logprobs).all()


def test_temperature_zero_is_greedy_with_log_probabilities_of_temperature_one() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [9.0, 0.0, 1.0]])
    sampling = Sampling(temperature=0.0, top_p=0.1, top_k=1)
    tokens, logprobs = draw_tokens(logits, torch.tensor([0.9, 0.9]), sampling, torch.tensor([0]))
    assert tokens.tolist() == [1, 2]
    expected = torch.log_softmax(torch.tensor([[3.0, 2.0], [0.0, 1.0]]), -1)
    assert torch.allclose(logprobs, expected[[0, 1], [0, 1]])


@settings(deadline=None)
@given(
    eighths=st.lists(st.integers(-64, 64), min_size=2, max_size=12, unique=True),
    k=st.integers(0, 12),
    p=st.floats(0.05, 1.0),
    temperature=st.floats(0.3, 2.0),
)
def test_top_k_then_top_p_leave_the_fewest_likeliest_tokens_that_reach_p(
    eighths: list[int], k: int, p: float, temperature: float
) -> None:
    logits = [value / 8 for value in eighths]
    sampling = Sampling(temperature=temperature, top_k=k, top_p=p)
    found = processed_logprobs(torch.tensor([logits]), sampling, NONE)[0]
    scaled = torch.tensor(logits) / temperature
    ranked = sorted(range(len(logits)), key=lambda token: -logits[token])[: k or None]
    probabilities = torch.softmax(scaled[ranked].double(), 0)
    before = probabilities.cumsum(0) - probabilities
    assume(not bool(((before - p).abs() < 1e-6).any()))
    kept = [token for token, sum_before in zip(ranked, before, strict=True) if sum_before < p]
    assert sorted(kept) == torch.isfinite(found).nonzero()[:, 0].tolist()
    assert torch.allclose(found[kept], torch.log_softmax(scaled[kept], 0), atol=1e-5)


def test_logits_that_are_not_finite_give_a_token_and_no_crash() -> None:
    tokens, logprobs = draw_tokens(torch.full((1, 5), math.nan), torch.tensor([0.5]), Sampling(), NONE)
    assert 0 <= int(tokens) < 5 and torch.isnan(logprobs).all()
