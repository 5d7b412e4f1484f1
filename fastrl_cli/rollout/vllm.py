"""Generation with vLLM, in the trainer's process, on a GPU or a CPU."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastrl_cli.config.engine import VllmEngineConfig
from fastrl_cli.errors import DataError
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.rollout import Done, Generation, Sampling, ignore
from fastrl_cli.rollout.vllm_start import import_vllm, process_unchanged, register_architecture

if TYPE_CHECKING:
    from fastrl_cli.models.images import SizeRule
    from fastrl_cli.models.processing import Processing

CPU_BLOCK_SIZE = 32
"""Tokens in a block of the key-value cache on a CPU. Prompts are shared in whole blocks, and vLLM's 128 would leave
most of a short prompt unshared."""

BATCHED_TOKENS = 8192
"""Prompt tokens in one pass. Prompts are not cut into chunks: on a CPU vLLM fails on the random generator of a response
whose prompt was."""

PICTURE_BYTES = 2**29
"""Pictures in one call."""

BYTES_OF_PIXEL = 24
"""Of a picture as the vision tower takes it: three channels of float32, each twice, as two frames of a film."""


class VllmEngine:
    """See `Engine`. Results may depend on what is batched together."""

    name = "vllm"

    def __init__(
        self,
        config: VllmEngineConfig,
        *,
        model_path: str,
        processing: Processing,
        device: torch.device,
        max_model_len: int,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Starts the engine with the weights at `model_path` and warms it up, which takes 5 to 30 seconds.
        `max_model_len` is the longest prompt and response together; `autocast` the lower precision of the trainer's
        passes, if any."""
        self.processing = processing
        self.device = device
        self.policy_version = 0
        arguments = engine_arguments(config, device, model_path, max_model_len, processing.size_rule)
        self.eager: bool = arguments["enforce_eager"]
        self.trusted_logprobs = arguments["dtype"] == "float32" and autocast is None
        self.sleep_level = config.sleep_level if device.type == "cuda" else 0
        self._owns_process_group = not torch.distributed.is_initialized()
        with process_unchanged():
            self.vllm = import_vllm()
            register_architecture(self.vllm, model_path)
            self.llm: Any = self.vllm.LLM(**arguments)
        self._warm_up()

    def _warm_up(self) -> None:
        """One short generation, so that what is compiled or allocated at first use is in no measured step."""
        token = [self.processing.stop_tokens[0]]
        parameters = self.vllm.SamplingParams(max_tokens=2, logprobs=0, seed=0, detokenize=False, ignore_eos=True)
        list(self._run([{"prompt_token_ids": token}], [parameters]))

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        done: Done = ignore,
    ) -> list[list[Generation]]:
        """See `Engine.generate`. Raises DataError where vLLM expands a prompt to other tokens than the trainer's."""
        made: list[list[Generation]] = [[] for _ in prompts]
        for part in self._parts(prompts):
            # vLLM seeds response k of a request with the request's seed plus k.
            parameters = [self._parameters(n, sampling, seed) for seed in seeds[part]]
            requests = [self._request(prompt) for prompt in prompts[part]]
            for number, output in self._run(requests, parameters):
                place = part.start + number
                _check_tokens(prompts[place], output.prompt_token_ids)
                made[place] = [self._generation(response) for response in output.outputs]
                done(place, made[place])
        return made

    def _parts(self, prompts: Sequence[Prompt]) -> Iterator[slice]:
        """The prompts in parts whose pictures take at most PICTURE_BYTES; vLLM holds all pictures of a call at once."""
        first = held = 0
        for place, prompt in enumerate(prompts):
            size = self._picture_bytes(prompt)
            if place > first and held + size > PICTURE_BYTES:
                yield slice(first, place)
                first, held = place, 0
            held += size
        if prompts:
            yield slice(first, len(prompts))

    def _picture_bytes(self, prompt: Prompt) -> int:
        if self.processing.size_rule is None:
            return 0
        tokens = int((prompt.token_ids == self._image_token).sum())
        return tokens * self.processing.size_rule.factor**2 * BYTES_OF_PIXEL

    @property
    def _image_token(self) -> int:
        token: int = self.processing.processor.image_token_id  # type: ignore[union-attr]
        return token

    def sync(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """See `Engine.sync`. Keys and values cached with the old weights would be used without a word, so every cache
        is emptied."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights)})
        self.llm.reset_prefix_cache()
        self.llm.llm_engine.reset_encoder_cache()
        self.llm.reset_mm_cache()
        self.policy_version = version

    def sleep(self) -> None:
        """See `Engine.sleep`. At level 2 the weights are gone until the next `sync`."""
        if self.sleep_level:
            self.llm.sleep(level=self.sleep_level)

    def wake(self) -> None:
        """See `Engine.wake`."""
        if self.sleep_level:
            self.llm.wake_up()

    def close(self) -> None:
        """Stop the engine and free its memory."""
        core = self.llm.llm_engine.engine_core
        if self._owns_process_group:
            core.shutdown()
        else:
            # The engine's own way down, which it also takes when it is collected, ends the trainer's process group too.
            core._finalizer.detach()
            core.engine_core.model_executor.shutdown()
        self.llm = None
        gc.collect()

    def _run(self, requests: list[dict[str, Any]], parameters: list[Any]) -> Iterator[tuple[int, Any]]:
        """The requests' outputs as they are finished, each with its place."""
        with self._undisturbed():
            names = self.llm.enqueue(requests, parameters, use_tqdm=False)
        # vLLM adds a random end to the names that it goes by itself, and takes it off again in the outputs.
        place_of = {name.partition("-")[0]: place for place, name in enumerate(names)}
        while self.llm.llm_engine.has_unfinished_requests():
            with self._undisturbed():
                outputs = self.llm.llm_engine.step()
            yield from ((place_of[output.request_id], output) for output in outputs if output.finished)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Around the engine's own work: without compiling where it runs eagerly, and with torch's random generators as
        they were."""
        # vLLM's sampler holds functions under torch.compile whatever `enforce_eager` says; compiling them takes
        # seconds.
        stance = torch.compiler.set_stance("force_eager") if self.eager else contextlib.nullcontext()
        devices = [self.device] if self.device.type == "cuda" else []
        with stance, torch.random.fork_rng(devices):
            yield

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        images = self.processing.images(prompt.sample)
        if not images:
            return {"prompt_token_ids": prompt.token_ids.tolist()}
        return {
            "prompt_token_ids": _collapsed(prompt.token_ids.tolist(), self._image_token),
            "multi_modal_data": {"image": images},
        }

    def _parameters(self, n: int, sampling: Sampling, seed: int) -> Any:
        return self.vllm.SamplingParams(
            n=n,
            seed=seed,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            logit_bias={token: float("-inf") for token in sampling.suppressed} or None,
            stop_token_ids=list(sampling.stop),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=self.vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    def _generation(self, response: Any) -> Generation:
        return Generation(
            token_ids=np.asarray(response.token_ids, dtype=np.int32),
            logprobs=np.asarray(response.logprobs.logprobs, dtype=np.float32),
            finish_reason="stop" if response.finish_reason == "stop" else "length",
            policy_version=self.policy_version,
        )


def engine_arguments(
    config: VllmEngineConfig, device: torch.device, model_path: str, max_model_len: int, size_rule: SizeRule | None
) -> dict[str, Any]:
    """Arguments of `vllm.LLM`. `size_rule` is that of the trainer's pictures, None for a model of text."""
    on_cpu = device.type == "cpu"
    longest = config.max_model_len or max_model_len
    arguments: dict[str, Any] = {
        "model": model_path,
        "dtype": config.dtype if config.dtype != "auto" else "float32" if on_cpu else "bfloat16",
        "max_model_len": longest,
        "tensor_parallel_size": config.tensor_parallel_size,
        "enforce_eager": config.enforce_eager if config.enforce_eager is not None else on_cpu,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(BATCHED_TOKENS, longest),
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    if on_cpu:
        arguments["kv_cache_memory_bytes"] = config.cpu_kv_cache_gib * 2**30
        arguments["block_size"] = CPU_BLOCK_SIZE
    else:
        arguments["gpu_memory_utilization"] = config.gpu_memory_utilization
        arguments["enable_sleep_mode"] = config.sleep_level > 0
    if "RANK" in os.environ and torch.distributed.is_initialized():
        arguments["distributed_executor_backend"] = "external_launcher"
    if size_rule is not None:
        arguments["limit_mm_per_prompt"] = {"video": 0}
        size = {"shortest_edge": size_rule.min_pixels, "longest_edge": size_rule.max_pixels}
        arguments["mm_processor_kwargs"] = {"size": size}
        # Each picture comes once between two updates, so vLLM's cache of prepared pictures would only fill memory.
        arguments["mm_processor_cache_gb"] = 0
    return arguments


def _collapsed(token_ids: list[int], placeholder: int) -> list[int]:
    """Each run of placeholders as one; vLLM expands them again. Two pictures never touch: tokens mark their ends."""
    kept: list[int] = []
    for token, run in itertools.groupby(token_ids):
        kept.extend([token] if token == placeholder else run)
    return kept


def _check_tokens(prompt: Prompt, token_ids: Sequence[int]) -> None:
    if not np.array_equal(prompt.token_ids, token_ids):
        raise DataError(
            f"sample {prompt.sample.id}: vLLM makes {len(token_ids)} prompt tokens where the trainer has "
            f"{len(prompt.token_ids)}, so its log-probabilities would be of another prompt. Use --engine transformers."
        )
