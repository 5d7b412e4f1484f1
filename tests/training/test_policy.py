"""The packed forward pass against a plain one, and what must not change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastrl_cli.errors import DivergedError
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import TokenIds
from fastrl_cli.training.policy import Policy
from fastrl_cli.training.rows import PromptRollouts, plan, tokens_of
from tests.tiny_models import KINDS, Kind
from tests.training.conftest import questions

PICTURES = {"qwen2_5_vl": [0, 1, 2], "qwen3_vl": [0, 1, 2], "llama": [0, 0, 0]}


def make_batch(policy: Policy, pictures: list[int]) -> tuple[list[Prompt], list[TokenIds], list[PromptRollouts]]:
    """Prompts with three, four, ... random responses each."""
    prompts = [policy.processing.prompt(sample) for sample in questions(pictures)]
    random = np.random.RandomState(0)
    responses: list[TokenIds] = []
    groups = []
    for place, prompt in enumerate(prompts):
        places = range(len(responses), len(responses) + 3 + place)
        responses += [random.randint(0, 256, random.randint(1, 12)).astype(np.int32) for _ in places]
        lengths = tuple(len(responses[k]) for k in places)
        groups.append(PromptRollouts(len(prompt.token_ids), tuple(places), lengths))
    return prompts, responses, groups


def packed_logprobs(policy, prompts, responses, groups, layout, budget=400):
    """Log-probabilities of every response, by its number."""
    found = {}
    for batch in plan(groups, layout, policy.hidden_size, budget, 1)[0]:
        packed = policy.pack(batch, prompts, responses)
        logprobs, _ = policy.logprobs(packed)
        found.update(zip(packed.rollouts, logprobs.split(list(packed.lengths)), strict=True))
    return found


def plain_logprobs(policy: Policy, prompt: Prompt, response: TokenIds, temperature: float) -> torch.Tensor:
    """The same by the model's own forward pass over one unpacked, unpadded sequence."""
    ids = torch.from_numpy(np.concatenate([prompt.token_ids, response]).astype(np.int64))[None]
    features = policy.processing.features(prompt.sample)
    inputs = {}
    if features is not None:
        kinds = (ids == policy.model.config.image_token_id).int()
        inputs = {"pixel_values": features.pixel_values, "image_grid_thw": features.grid_thw}
        inputs["mm_token_type_ids"] = kinds
    logits = policy.model(ids, **inputs).logits[0].float() / temperature
    logits[:, list(policy.processing.suppressed_tokens)] = -torch.inf
    logprobs = torch.log_softmax(logits, -1)[len(prompt.token_ids) - 1 : -1]
    return logprobs.gather(1, torch.from_numpy(response.astype(np.int64))[:, None])[:, 0]


@pytest.mark.parametrize("max_padding", [0.0, 0.05, 1.0], ids=["one row", "few rows", "a row for each block"])
@pytest.mark.parametrize("layout", ["rows", "shared_prefix"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_25_and_28_packed_logprobs_equal_the_models_own(
    make_policy, monkeypatch: pytest.MonkeyPatch, kind: Kind, layout: str, max_padding: float
):
    monkeypatch.setattr("fastrl_cli.training.rows.MAX_PADDING", max_padding)
    policy = make_policy(kind, temperature=1.3)
    prompts, responses, groups = make_batch(policy, PICTURES[kind])
    found = packed_logprobs(policy, prompts, responses, groups, layout)
    for group, prompt in zip(groups, prompts, strict=True):
        for place in group.rollouts:
            expected = plain_logprobs(policy, prompt, responses[place], 1.3)
            torch.testing.assert_close(found[place], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_both_layouts_agree(make_policy, kind: Kind):
    gradients = []
    for layout in ("rows", "shared_prefix"):
        policy = make_policy(kind)
        prompts, responses, groups = make_batch(policy, PICTURES[kind])
        found = packed_logprobs(policy, prompts, responses, groups, layout)
        sum(logprobs.sum() for logprobs in found.values()).backward()
        gradients.append({name: parameter.grad for name, parameter in policy.model.named_parameters()})
    for name, gradient in gradients[0].items():
        if gradient is not None:
            other = gradients[1][name]
            assert (gradient - other).norm() <= 1e-4 * gradient.norm() + 1e-5, name


def test_row_14_values_at_padded_positions_do_not_matter(make_policy: Callable[..., Policy]):
    policy = make_policy("qwen2_5_vl")
    prompts, responses, groups = make_batch(policy, [0, 1])
    batch = plan(groups, "rows", policy.hidden_size, 10_000, 1)[0][0]
    packed = policy.pack(batch, prompts, responses)
    assert packed.padding_tokens > 0
    padding = torch.ones_like(packed.input_ids, dtype=torch.bool)
    for place, row in enumerate(batch):
        padding[place, : tokens_of(row)] = False
    noise = torch.randint(0, 256, packed.input_ids.shape)
    noisy = replace(packed, input_ids=torch.where(padding, noise, packed.input_ids))
    assert not torch.equal(noisy.input_ids, packed.input_ids)
    torch.testing.assert_close(policy.logprobs(noisy)[0], policy.logprobs(packed)[0], atol=0, rtol=0)


def test_row_48_a_pad_token_inside_a_response_is_a_token(make_policy: Callable[..., Policy]):
    policy = make_policy("llama")
    prompts, responses, groups = make_batch(policy, [0])
    responses[0] = np.full(6, policy.processing.pad_token_id, dtype=np.int32)
    groups[0] = replace(groups[0], lengths=(6, *groups[0].lengths[1:]))
    found = packed_logprobs(policy, prompts, responses, groups, "shared_prefix")
    expected = plain_logprobs(policy, prompts[0], responses[0], 1.0)
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=0)


def test_an_empty_micro_batch_reaches_every_parameter_with_a_zero_gradient(make_policy: Callable[..., Policy]):
    policy = make_policy("qwen2_5_vl")
    packed = policy.pack((), [], [])
    logprobs, entropy = policy.logprobs(packed)
    assert logprobs.shape == entropy.shape == (0,)
    logprobs.sum().backward()
    for name, parameter in policy.model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_a_micro_batch_without_pictures_enters_the_vision_tower(make_policy: Callable[..., Policy]):
    for kind in ("qwen2_5_vl", "qwen3_vl"):
        policy = make_policy(kind)
        prompts, responses, groups = make_batch(policy, [0])
        sum(x.sum() for x in packed_logprobs(policy, prompts, responses, groups, "auto").values()).backward()
        vision = [p for name, p in policy.model.named_parameters() if "visual" in name]
        assert vision
        assert all(parameter.grad is not None for parameter in vision)


def test_long_batches_are_cut_into_chunks_without_a_change(make_policy, monkeypatch: pytest.MonkeyPatch):
    policy = make_policy("llama")
    prompts, responses, groups = make_batch(policy, [0, 0])
    whole = packed_logprobs(policy, prompts, responses, groups, "auto")
    monkeypatch.setattr("fastrl_cli.training.module.LOGITS_PER_CHUNK", 3 * 264)
    cut = packed_logprobs(policy, prompts, responses, groups, "auto")
    for place, logprobs in whole.items():
        torch.testing.assert_close(cut[place], logprobs, atol=1e-5, rtol=0)
    sum(logprobs.sum() for logprobs in cut.values()).backward()


def test_entropy_is_that_of_the_tempered_distribution(make_policy: Callable[..., Policy]):
    policy = make_policy("llama", temperature=0.6)
    prompts, responses, groups = make_batch(policy, [0])
    packed = policy.pack(plan(groups, "rows", 64, 10_000, 1)[0][0], prompts, responses)
    _, entropy = policy.logprobs(packed)
    ids = torch.from_numpy(prompts[0].token_ids.astype(np.int64))[None]
    distribution = torch.distributions.Categorical(logits=policy.model(ids).logits[0, -1].float() / 0.6)
    first_tokens = np.cumsum([0, *packed.lengths[:-1]])
    torch.testing.assert_close(entropy[first_tokens[0]], distribution.entropy(), atol=1e-4, rtol=0)


def test_weights_that_are_not_finite_are_found(make_policy) -> None:
    policy = make_policy("llama")
    policy.check_finite()
    next(policy.model.parameters()).data[0, 0] = float("nan")
    with pytest.raises(DivergedError, match="not finite"):
        policy.check_finite()
