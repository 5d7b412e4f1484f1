"""What every engine must do, on each architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastrl_cli.rollout.rollout import Generation
from tests.rollout.helpers import Kit, forward_logprobs, gap, picture, question, seeds
from tests.tiny_models import KINDS, Kind

MakeKit = Callable[[str, Kind], Kit]

ENGINES = pytest.mark.parametrize("name", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
ALL_KINDS = pytest.mark.parametrize("kind", KINDS)
PICTURE_KINDS = pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])


@ENGINES
@ALL_KINDS
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_logprobs_are_those_of_a_plain_forward_pass_after_load_and_after_an_update(
    make_kit: MakeKit, name: str, kind: Kind, temperature: float
) -> None:
    kit = make_kit(name, kind)
    prompts, sampling = kit.prompts(), kit.sampling(temperature=temperature, stop=())
    answers = kit.engine.generate(prompts, 3, sampling, seeds(len(prompts)))
    assert gap(kit, prompts, answers, sampling) < 1e-4
    kit.load(kit.perturbed(), 1)
    updated = kit.engine.generate(prompts, 3, sampling, seeds(len(prompts)))
    assert gap(kit, prompts, updated, sampling) < 1e-4
    assert gap(kit, prompts, answers, sampling) > 1e-2, "the update must change log-probabilities visibly"


@ENGINES
@PICTURE_KINDS
def test_vision_tokens_are_never_drawn_even_by_a_model_that_wants_nothing_else(
    make_kit: MakeKit, name: str, kind: Kind
) -> None:
    kit = make_kit(name, kind)
    weights = {key: tensor.clone() for key, tensor in kit.initial.items()}
    vision = list(kit.processing.suppressed_tokens)
    assert len(vision) == 5
    generator = torch.Generator().manual_seed(1)
    for key in ("lm_head.weight", "model.language_model.embed_tokens.weight"):
        weights[key][vision] = 30 * torch.randn(5, weights[key].shape[1], generator=generator.manual_seed(1))
    kit.load(weights, 1)
    prompts, sampling = kit.prompts(), kit.sampling(stop=())

    def share(suppressed: tuple[int, ...]) -> float:
        free = kit.sampling(stop=(), suppressed=suppressed)
        answers = kit.engine.generate(prompts, 4, free, seeds(len(prompts)))
        drawn = np.concatenate([generation.token_ids for group in answers for generation in group])
        return float(np.isin(drawn, vision).mean())

    assert share(()) > 0.5
    assert share(sampling.suppressed) == 0
    answers = kit.engine.generate(prompts, 4, sampling, seeds(len(prompts)))
    assert gap(kit, prompts, answers, sampling) < 1e-3


@ENGINES
@ALL_KINDS
def test_a_response_ends_at_any_end_token_and_holds_it_even_where_it_is_the_padding(
    make_kit: MakeKit, name: str, kind: Kind
) -> None:
    kit = make_kit(name, kind)
    padding = kit.processing.pad_token_id
    assert padding in kit.processing.stop_tokens and len(kit.processing.stop_tokens) == 2
    weights = {key: tensor.clone() for key, tensor in kit.initial.items()}
    head = weights["lm_head.weight"]
    head[list(kit.processing.stop_tokens)] = 2.0 * head[list(kit.processing.stop_tokens)]
    kit.load(weights, 1)
    prompts, sampling = kit.prompts(), kit.sampling(max_tokens=24, temperature=1.3)
    answers = kit.engine.generate(prompts, 24, sampling, seeds(len(prompts)))
    ends = set()
    for generation in (generation for group in answers for generation in group):
        inside = np.isin(generation.token_ids[:-1], sampling.stop)
        assert not inside.any()
        last = int(generation.token_ids[-1])
        if generation.finish_reason == "stop":
            assert last in sampling.stop
            ends.add(last)
        else:
            assert len(generation.token_ids) == 24 and last not in sampling.stop
            ends.add(-1)
    assert ends == {*sampling.stop, -1}, "both end tokens and the limit must occur for the test to mean anything"
    assert gap(kit, prompts, answers, sampling) < 1e-4


@ENGINES
@ALL_KINDS
def test_temperature_zero_takes_the_likeliest_token(make_kit: MakeKit, name: str, kind: Kind) -> None:
    kit = make_kit(name, kind)
    prompts, sampling = kit.prompts(), kit.sampling(temperature=0.0, stop=())
    answers = kit.engine.generate(prompts, 1, sampling, seeds(len(prompts)))
    for prompt, (generation,) in zip(prompts, answers, strict=True):
        expected = forward_logprobs(kit, prompt, generation.token_ids, sampling)
        assert expected.argmax(-1).tolist() == generation.token_ids.tolist()
    assert gap(kit, prompts, answers, sampling) < 1e-4


@ENGINES
@pytest.mark.parametrize("limits", [{"top_k": 5}, {"top_p": 0.7}, {"top_k": 8, "top_p": 0.6}])
def test_top_k_and_top_p_leave_only_the_likeliest_tokens_and_renormalise(
    make_kit: MakeKit, name: str, limits: dict[str, float]
) -> None:
    kit = make_kit(name, "qwen2_5_vl")
    prompts, sampling = kit.prompts(), kit.sampling(temperature=1.2, stop=(), **limits)
    answers = kit.engine.generate(prompts, 4, sampling, seeds(len(prompts)))
    for prompt, group in zip(prompts, answers, strict=True):
        for generation in group:
            full = forward_logprobs(kit, prompt, generation.token_ids, sampling)
            for row, token, logprob in zip(full, generation.token_ids, generation.logprobs, strict=True):
                probabilities, order = row.exp().sort(descending=True)
                top = probabilities[: sampling.top_k or None]
                top = top / top.sum()
                kept = int((top.cumsum(0) - top < sampling.top_p).sum())
                place = order.tolist().index(int(token))
                assert place < kept
                assert np.log(float(top[place] / top[:kept].sum())) == pytest.approx(logprob, abs=1e-4)


@ENGINES
@ALL_KINDS
def test_every_generation_carries_the_version_of_its_weights(make_kit: MakeKit, name: str, kind: Kind) -> None:
    kit = make_kit(name, kind)
    prompts, sampling = kit.prompts((1,)), kit.sampling()
    for version in (0, 3, 4):
        if version:
            kit.load(kit.perturbed(seed=version), version)
        (group,) = kit.engine.generate(prompts, 2, sampling, seeds(1))
        assert [generation.policy_version for generation in group] == [version, version]
        assert kit.engine.policy_version == version


@ENGINES
def test_the_number_of_responses_may_change_from_call_to_call(make_kit: MakeKit, name: str) -> None:
    kit = make_kit(name, "qwen2_5_vl")
    prompts, sampling = kit.prompts((0, 1, 2)), kit.sampling()
    for n in (8, 2, 5):
        answers = kit.engine.generate(prompts, n, sampling, seeds(3))
        assert [len(group) for group in answers] == [n] * 3
        assert gap(kit, prompts, answers, sampling) < 1e-4
    assert kit.engine.generate([], 4, sampling, []) == []


@ENGINES
def test_a_seed_decides_a_response_and_another_seed_another(make_kit: MakeKit, name: str) -> None:
    kit = make_kit(name, "qwen2_5_vl")
    prompts, sampling = kit.prompts((1,)), kit.sampling(temperature=1.3, stop=())

    def tokens(base: int) -> list[list[int]]:
        (group,) = kit.engine.generate(prompts, 4, sampling, seeds(1, base))
        return [generation.token_ids.tolist() for generation in group]

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(100)
    assert len({tuple(row) for row in tokens(1)}) == 4
    assert tokens(3)[0] == tokens(1)[2], "response k is drawn with the group's seed plus k, which the records state"


@ENGINES
def test_an_engine_leaves_the_trainer_as_it_was(make_kit: MakeKit, name: str) -> None:
    kit = make_kit(name, "qwen2_5_vl")
    kit.model.train()
    attention = kit.model.config.get_text_config()._attn_implementation
    states = torch.get_rng_state(), torch.get_num_threads(), torch.set_num_threads, torch.get_default_dtype()
    kit.engine.generate(kit.prompts(), 2, kit.sampling(), seeds(4))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (torch.get_num_threads(), torch.set_num_threads, torch.get_default_dtype()) == states[1:]
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert kit.model.training
    assert kit.model.config.get_text_config()._attn_implementation == attention == "sdpa"


@ENGINES
@PICTURE_KINDS
def test_engine_and_trainer_see_pictures_of_any_size_alike(make_kit: MakeKit, name: str, kind: Kind) -> None:
    kit = make_kit(name, kind)
    sizes = [(29, 31), (56, 56), (400, 60), (61, 590), (280, 280), (281, 279), (1000, 900), (300, 2)]
    plain = question(0, 0)
    prompts = [
        kit.processing.prompt(replace(plain, id=f"test:{place}", question="<image>?", images=(picture(*size, place),)))
        for place, size in enumerate(sizes)
    ]
    sampling = kit.sampling(max_tokens=2, stop=())
    answers = kit.engine.generate(prompts, 1, sampling, seeds(len(prompts)))
    assert gap(kit, prompts, answers, sampling) < 1e-4


@ENGINES
def test_each_prompt_is_reported_once_with_all_its_responses(make_kit: MakeKit, name: str) -> None:
    kit = make_kit(name, "qwen2_5_vl")
    prompts, sampling = kit.prompts((0, 1, 0, 2)), kit.sampling()
    told: dict[int, list[Generation]] = {}

    def done(place: int, generations: list[Generation]) -> None:
        assert place not in told and len(generations) == 3
        told[place] = list(generations)

    answers = kit.engine.generate(prompts, 3, sampling, seeds(4), done)
    for place, group in enumerate(answers):
        assert all(one is other for one, other in zip(told[place], group, strict=True))
