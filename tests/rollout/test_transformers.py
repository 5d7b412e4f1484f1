"""What the transformers engine promises beyond other engines: bits that repeat, and nothing computed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastrl_cli.rollout.rollout import Generation
from fastrl_cli.rollout.transformers import TransformersEngine
from tests.rollout.helpers import Kit, gap, seeds
from tests.tiny_models import KINDS, Kind

MakeKit = Callable[[str, Kind], Kit]
ALL_KINDS = pytest.mark.parametrize("kind", KINDS)


def engine_of(kit: Kit, batch_size: int = 128, autocast: torch.dtype | None = None) -> TransformersEngine:
    return TransformersEngine(kit.model, kit.processing, batch_size=batch_size, autocast=autocast)


def assert_same_bits(left: Sequence[Sequence[Generation]], right: Sequence[Sequence[Generation]]) -> None:
    for one, other in zip(left, right, strict=True):
        for first, second in zip(one, other, strict=True):
            assert np.array_equal(first.token_ids, second.token_ids)
            assert np.array_equal(first.logprobs, second.logprobs)
            assert first.finish_reason == second.finish_reason


@ALL_KINDS
def test_the_same_call_and_another_order_of_the_prompts_give_the_same_bits(make_kit: MakeKit, kind: Kind) -> None:
    kit = make_kit("transformers", kind)
    prompts, sampling, all_seeds = kit.prompts((0, 1, 2, 1, 0)), kit.sampling(), seeds(5)
    once = kit.engine.generate(prompts, 4, sampling, all_seeds)
    assert_same_bits(once, kit.engine.generate(prompts, 4, sampling, all_seeds))
    order = [3, 0, 4, 2, 1]
    shuffled = kit.engine.generate([prompts[i] for i in order], 4, sampling, [all_seeds[i] for i in order])
    assert_same_bits([once[i] for i in order], shuffled)


@ALL_KINDS
@pytest.mark.parametrize("batch_size", [1, 3, 8, 10])
def test_the_batch_size_changes_nothing_but_rounding(make_kit: MakeKit, kind: Kind, batch_size: int) -> None:
    kit = make_kit("transformers", kind)
    prompts, sampling, all_seeds = kit.prompts((0, 1, 2)), kit.sampling(temperature=1.3), seeds(3)
    whole = engine_of(kit).generate(prompts, 4, sampling, all_seeds)
    parts = engine_of(kit, batch_size).generate(prompts, 4, sampling, all_seeds)
    for one, other in zip(whole, parts, strict=True):
        for first, second in zip(one, other, strict=True):
            assert first.token_ids.tolist() == second.token_ids.tolist()
            assert np.allclose(first.logprobs, second.logprobs, atol=1e-5)


def test_prompts_too_many_for_one_pass_are_prefilled_in_parts(
    make_kit: MakeKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = make_kit("transformers", "qwen2_5_vl")
    prompts, sampling, all_seeds = kit.prompts((0, 1, 2, 1)), kit.sampling(stop=()), seeds(4)
    whole = kit.engine.generate(prompts, 3, sampling, all_seeds)
    monkeypatch.setattr("fastrl_cli.rollout.prefill.PREFILL_TOKENS", 2 * len(prompts[1].token_ids))
    parts = kit.engine.generate(prompts, 3, sampling, all_seeds)
    assert gap(kit, prompts, parts, sampling) < 1e-4
    assert [[g.token_ids.tolist() for g in group] for group in whole] == [
        [g.token_ids.tolist() for g in group] for group in parts
    ]


def test_each_prompt_and_its_pictures_are_computed_once_for_all_responses(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "qwen2_5_vl")
    prompts = kit.prompts((1, 2))
    patches: list[int] = []
    tokens: list[int] = []
    kit.model.model.visual.register_forward_pre_hook(lambda _, inputs: patches.append(len(inputs[0])))
    kit.model.get_decoder().register_forward_hook(lambda _, __, output: tokens.append(output[0][..., 0].numel()))
    kit.engine.generate(prompts, 8, kit.sampling(max_tokens=4, stop=()), seeds(2))
    assert sum(patches) == sum(len(kit.processing.features(p.sample).pixel_values) for p in prompts)
    longest = max(len(prompt.token_ids) for prompt in prompts)
    assert tokens == [2 * longest, 16, 16, 16]


def test_finished_responses_leave_the_batch(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "llama")
    widths: list[int] = []
    hook = kit.model.get_decoder().register_forward_pre_hook(
        lambda _, __, kwargs: widths.append(len(kwargs["position_ids"])), with_kwargs=True
    )
    prompts, sampling = kit.prompts(), kit.sampling(stop=tuple(range(0, 256, 8)), max_tokens=40)
    answers = kit.engine.generate(prompts, 6, sampling, seeds(4))
    hook.remove()
    lengths = np.array([len(generation.token_ids) for group in answers for generation in group])
    assert lengths.max() > lengths.min()
    assert widths[1:] == [int((lengths > step).sum()) for step in range(1, lengths.max())]
    assert gap(kit, prompts, answers, sampling) < 1e-4


def test_a_response_longer_than_the_first_room_of_its_cache(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "qwen3_vl")
    prompts, sampling = kit.prompts((1, 0)), kit.sampling(max_tokens=80, stop=())
    answers = kit.engine.generate(prompts, 2, sampling, seeds(2))
    assert {len(generation.token_ids) for group in answers for generation in group} == {80}
    assert gap(kit, prompts, answers, sampling) < 1e-4


def test_questions_with_one_text_and_different_pictures_stay_apart(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "qwen2_5_vl")
    first, other = kit.prompts((1, 1))
    twin = replace(first, sample=replace(first.sample, id="test:twin", images=other.sample.images))
    sampling = kit.sampling(stop=())
    answers = kit.engine.generate([first, twin], 4, sampling, seeds(2))
    assert gap(kit, [first, twin], answers, sampling) < 1e-4
    assert gap(kit, [twin, first], answers, sampling) > 1e-3


def test_log_probabilities_under_a_lower_precision_are_near_and_not_called_exact(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "qwen2_5_vl")
    engine = engine_of(kit, autocast=torch.bfloat16)
    prompts, sampling = kit.prompts(), kit.sampling()
    answers = engine.generate(prompts, 2, sampling, seeds(4))
    assert not engine.trusted_logprobs and kit.engine.trusted_logprobs
    assert 1e-4 < gap(kit, prompts, answers, sampling) < 0.5


def test_an_eager_model_generates_the_same(make_kit: MakeKit) -> None:
    kit = make_kit("transformers", "qwen2_5_vl")
    prompts, sampling, all_seeds = kit.prompts(), kit.sampling(), seeds(4)
    expected = kit.engine.generate(prompts, 2, sampling, all_seeds)
    kit.model.set_attn_implementation({"text_config": "eager"})
    answers = kit.engine.generate(prompts, 2, sampling, all_seeds)
    assert [[g.token_ids.tolist() for g in group] for group in answers] == [
        [g.token_ids.tolist() for g in group] for group in expected
    ]
    assert kit.model.config.get_text_config()._attn_implementation == "eager"
