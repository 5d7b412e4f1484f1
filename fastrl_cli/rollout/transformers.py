"""Generation with the trainer's own torch model. There is no second copy of the weights and nothing to hand over, and
on a CPU the same call gives the same tokens and log-probabilities bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fastrl_cli.models.positions import position_axes
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.decoding import ATTENTION, SharedPrefixCache, attention_of
from fastrl_cli.rollout.draw import draw_tokens, uniforms
from fastrl_cli.rollout.prefill import prefill
from fastrl_cli.rollout.rollout import Done, Generation, Sampling, ignore

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from fastrl_cli.models.processing import Processing


@dataclass(frozen=True)
class Request:
    """One response to make: its prompt's place in the call, its place among that prompt's responses, its seed."""

    prompt: int
    index: int
    seed: int


@dataclass(frozen=True)
class Drawn:
    """R responses being made."""

    tokens: Tensor
    """(R, max_tokens)."""
    logprobs: Tensor
    """(R, max_tokens) float32."""
    lengths: Tensor
    """(R,), end token included."""

    def generations(self, stop: Sequence[int], version: int) -> list[Generation]:
        tokens, logprobs = self.tokens.int().cpu().numpy(), self.logprobs.cpu().numpy()
        return [
            Generation(
                token_ids=row[:length].copy(),
                logprobs=scores[:length].copy(),
                finish_reason="stop" if row[length - 1] in stop else "length",
                policy_version=version,
            )
            for row, scores, length in zip(tokens, logprobs, self.lengths.tolist(), strict=True)
        ]


class TransformersEngine:
    """See `Engine`. The random numbers of a response come from its seed alone; what else is decoded in the call moves
    its log-probabilities by float rounding only, and the order of the prompts does not matter at all."""

    name = "transformers"

    def __init__(
        self,
        model: PreTrainedModel,
        processing: Processing,
        *,
        batch_size: int,
        autocast: torch.dtype | None = None,
    ) -> None:
        """`batch_size` bounds the responses decoded at once; `autocast` is the lower precision of the passes, if
        any."""
        self.model = model
        self.processing = processing
        self.batch_size = batch_size
        self.autocast = autocast
        self.policy_version = 0
        self.trusted_logprobs = autocast is None

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int],
        done: Done = ignore,
    ) -> list[list[Generation]]:
        """See `Engine.generate`."""
        made: list[list[Generation]] = [[] for _ in prompts]
        for batch in self._batches(prompts, n, seeds):
            with self._inference():
                generations = self._decode(prompts, batch, sampling)
            for request, generation in zip(batch, generations, strict=True):
                made[request.prompt].append(generation)
                if len(made[request.prompt]) == n:
                    done(request.prompt, made[request.prompt])
        return made

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """The weights are the trainer's own: only the version changes."""
        self.policy_version = version

    def sleep(self) -> None:
        """Nothing is held between calls."""

    def wake(self) -> None:
        """See `sleep`."""

    def close(self) -> None:
        """See `sleep`."""

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @contextmanager
    def _inference(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        autocast = torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None)
        try:
            with torch.no_grad(), autocast:
                yield
        finally:
            self.model.train(was_training)

    def _batches(self, prompts: Sequence[Prompt], n: int, seeds: Sequence[int]) -> Iterator[list[Request]]:
        """The call's requests in batches, shortest prompts first, all of a prompt together where they fit. Only what
        the prompts hold decides the order, not where they stand in the call."""
        order = sorted(
            range(len(prompts)),
            key=lambda place: (len(prompts[place].token_ids), prompts[place].token_ids.tobytes(), seeds[place]),
        )
        requests = [Request(place, index, seeds[place] + index) for place in order for index in range(n)]
        size = self.batch_size - self.batch_size % n or self.batch_size
        for first in range(0, len(requests), size):
            yield requests[first : first + size]

    def _decode(self, prompts: Sequence[Prompt], batch: list[Request], sampling: Sampling) -> list[Generation]:
        """The batch's generations, in its order."""
        places = list(dict.fromkeys(request.prompt for request in batch))
        row_of = {place: row for row, place in enumerate(places)}
        owner = torch.tensor([row_of[request.prompt] for request in batch], device=self.device)
        prompt_states = prefill(self.model, self.processing, [prompts[place] for place in places])
        cache = SharedPrefixCache(prompt_states.layers, prompt_states.bias, owner)
        uniform = uniforms([request.seed for request in batch], sampling.max_tokens).to(self.device)
        with attention_of(self.model.get_decoder(), ATTENTION):
            drawn = self._continue(prompt_states.logits[owner], prompt_states.start[owner], cache, uniform, sampling)
        return drawn.generations(sampling.stop, self.policy_version)

    def _continue(
        self, logits: Tensor, start: Tensor, cache: SharedPrefixCache, uniform: Tensor, sampling: Sampling
    ) -> Drawn:
        """Token by token from the first logits (R, V) and rotary positions (R,); finished responses leave the batch."""
        drawn = Drawn(
            tokens=torch.zeros_like(uniform, dtype=torch.long),
            logprobs=torch.zeros_like(uniform),
            lengths=torch.full_like(start, sampling.max_tokens),
        )
        suppressed = torch.tensor(sampling.suppressed, dtype=torch.long, device=self.device)
        stop = torch.tensor(sampling.stop, dtype=torch.long, device=self.device)
        active = torch.arange(len(start), device=self.device)
        for step in range(sampling.max_tokens):
            tokens, logprobs = draw_tokens(logits, uniform[active, step], sampling, suppressed)
            drawn.tokens[active, step], drawn.logprobs[active, step] = tokens, logprobs
            ended = torch.isin(tokens, stop)
            drawn.lengths[active[ended]] = step + 1
            going = (~ended).nonzero()[:, 0]
            if len(going) == 0 or step + 1 == sampling.max_tokens:
                break
            if len(going) < len(active):
                active, tokens = active[going], tokens[going]
                cache.select(going)
            logits = self._next_logits(tokens, start[active] + step, cache)
        return drawn

    def _next_logits(self, tokens: Tensor, positions: Tensor, cache: SharedPrefixCache) -> Tensor:
        """(R, V) after one more token of each response."""
        axes = position_axes(self.model)
        position_ids = positions[:, None] if axes == 1 else positions[:, None].expand(axes, -1, -1)
        hidden = self.model.get_decoder()(
            input_ids=tokens[:, None], position_ids=position_ids, past_key_values=cache, use_cache=True
        ).last_hidden_state
        logits: Tensor = self.model.get_output_embeddings()(hidden[:, 0])
        return logits
