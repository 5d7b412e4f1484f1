"""What is vLLM's own: caches that outlive an update, a process left as it was, prompts that must agree."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fastrl_cli.config.engine import VllmEngineConfig
from fastrl_cli.errors import DataError
from fastrl_cli.models.images import SizeRule
from fastrl_cli.rollout.vllm import engine_arguments
from fastrl_cli.rollout.vllm_start import process_unchanged
from tests.rollout.helpers import Kit, gap, seeds
from tests.tiny_models import Kind

pytestmark = pytest.mark.vllm
MakeKit = Callable[[str, Kind], Kit]


@pytest.fixture
def kit(make_kit: MakeKit) -> Kit:
    return make_kit("vllm", "qwen2_5_vl")


def long_prompts(kit: Kit) -> list:
    """Prompts of several cache blocks, so that their keys and values are kept for the next call."""
    samples = [
        replace(prompt.sample, question=prompt.sample.question + "abcdefgh" * 20) for prompt in kit.prompts((0, 1))
    ]
    return [kit.processing.prompt(sample) for sample in samples]


def test_keys_cached_with_old_weights_would_be_used_if_sync_did_not_reset_them(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, sampling = long_prompts(kit), kit.sampling(stop=())
    assert gap(kit, prompts, kit.engine.generate(prompts, 2, sampling, seeds(2)), sampling) < 1e-4
    with monkeypatch.context() as broken:
        broken.setattr(kit.engine.llm, "reset_prefix_cache", lambda: True)
        kit.load(kit.perturbed(), 1)
    stale = kit.engine.generate(prompts, 2, sampling, seeds(2))
    assert gap(kit, prompts, stale, sampling) > 1e-2
    kit.load(kit.perturbed(), 2)
    fresh = kit.engine.generate(prompts, 2, sampling, seeds(2))
    assert gap(kit, prompts, fresh, sampling) < 1e-4


def test_pictures_encoded_with_old_weights_are_not_used_after_an_update_of_the_vision_tower_alone(kit: Kit) -> None:
    prompts, sampling = long_prompts(kit), kit.sampling(stop=())
    before = kit.engine.generate(prompts, 2, sampling, seeds(2))
    moved = kit.perturbed(scale=0.3)
    kit.load({name: moved[name] if "visual" in name else old for name, old in kit.initial.items()}, 1)
    after = kit.engine.generate(prompts, 2, sampling, seeds(2))
    assert gap(kit, prompts, after, sampling) < 1e-4
    assert gap(kit, prompts[1:], before[1:], sampling) > 1e-3
    assert [g.token_ids.tolist() for g in before[0]] == [g.token_ids.tolist() for g in after[0]]


def test_the_caches_of_pictures_do_not_grow_from_step_to_step(kit: Kit) -> None:
    runner = kit.engine.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    for version in range(1, 4):
        kit.engine.generate(kit.prompts((1, 2)), 2, kit.sampling(), seeds(2))
        assert len(runner.encoder_cache) > 0
        kit.load(kit.initial, version)
        assert len(runner.encoder_cache) == 0


def test_pictures_that_take_much_memory_come_in_parts(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, sampling = kit.prompts((1, 0, 2, 1, 0)), kit.sampling()
    features = [kit.processing.features(prompt.sample) for prompt in prompts]
    sizes = [found.pixel_values.nbytes if found else 0 for found in features]
    monkeypatch.setattr("fastrl_cli.rollout.vllm.PICTURE_BYTES", sizes[0] + sizes[2])
    calls: list[int] = []
    run = kit.engine._run
    monkeypatch.setattr(kit.engine, "_run", lambda requests, rest: calls.append(len(requests)) or run(requests, rest))
    answers = kit.engine.generate(prompts, 2, sampling, seeds(5))
    assert calls == [3, 2]
    assert gap(kit, prompts, answers, sampling) < 1e-4


def test_a_prompt_that_vllm_expands_to_other_tokens_is_an_error(kit: Kit) -> None:
    prompt = kit.prompts((1,))[0]
    token = kit.processing.processor.image_token_id
    place = prompt.token_ids.tolist().index(token)
    longer = replace(prompt, token_ids=np.insert(prompt.token_ids, place, token))
    with pytest.raises(DataError, match=r"sample test:0: vLLM makes .* --engine transformers"):
        kit.engine.generate([longer], 1, kit.sampling(), seeds(1))


def test_starting_leaves_threads_generators_and_environment_as_they_were() -> None:
    before = torch.set_num_threads, random.getstate(), torch.get_rng_state(), dict(os.environ)
    with process_unchanged():
        torch.set_num_threads = lambda _: None
        os.environ["LD_PRELOAD"] = os.environ["OMP_NUM_THREADS"] = "changed"
        random.seed(1)
        torch.manual_seed(1)
        np.random.seed(1)
    assert torch.set_num_threads is before[0]
    assert random.getstate() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert dict(os.environ) == before[3]


def test_on_a_gpu_the_engine_has_its_share_of_memory_its_precision_and_sleeps() -> None:
    config = VllmEngineConfig(tensor_parallel_size=2, gpu_memory_utilization=0.4, sleep_level=2)
    arguments = engine_arguments(config, torch.device("cuda"), "folder", 3000, SizeRule(28, 3136, 9408))
    assert arguments["dtype"] == "bfloat16" and not arguments["enforce_eager"]
    assert arguments["gpu_memory_utilization"] == 0.4 and arguments["enable_sleep_mode"]
    assert arguments["tensor_parallel_size"] == 2 and arguments["max_model_len"] == 3000
    assert arguments["mm_processor_kwargs"] == {"size": {"shortest_edge": 3136, "longest_edge": 9408}}
    assert "kv_cache_memory_bytes" not in arguments


def test_on_a_cpu_the_engine_is_eager_in_float32_with_a_cache_of_the_configured_size() -> None:
    arguments = engine_arguments(VllmEngineConfig(cpu_kv_cache_gib=3), torch.device("cpu"), "folder", 20_000, None)
    assert arguments["dtype"] == "float32" and arguments["enforce_eager"]
    assert arguments["kv_cache_memory_bytes"] == 3 * 2**30
    assert arguments["max_num_batched_tokens"] == 20_000, "a prompt is never cut into chunks"
    assert not {"gpu_memory_utilization", "enable_sleep_mode", "mm_processor_kwargs"} & set(arguments)
