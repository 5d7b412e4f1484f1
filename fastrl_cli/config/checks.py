"""Rules that tie several fields together. Each is one sentence that says what to change."""

from __future__ import annotations

from collections.abc import Iterator

from fastrl_cli.config.engine import ReplayEngineConfig, VllmEngineConfig
from fastrl_cli.config.pruning import AdvantageOnlyConfig, ARSConfig, MDAPConfig, NoPruningConfig
from fastrl_cli.config.run import RunConfig


def errors(config: RunConfig) -> list[str]:
    """What cannot be run."""
    return [*_batch_errors(config), *_algorithm_errors(config), *_engine_errors(config), *_data_errors(config)]


def warnings(config: RunConfig) -> list[str]:
    """What runs, but hardly as meant."""
    return [*_selection_warnings(config), *_algorithm_warnings(config)]


def _batch_errors(config: RunConfig) -> Iterator[str]:
    batch, optimizer = config.batch, config.optimizer
    generated = batch.questions_per_step * batch.rollouts
    if (optimizer.updates_per_batch is None) == (optimizer.mini_batch_rollouts is None):
        yield (
            f"optimizer.updates_per_batch is {_null(optimizer.updates_per_batch)} and optimizer.mini_batch_rollouts "
            f"is {_null(optimizer.mini_batch_rollouts)}: exactly one of the two must be set. For a fixed number of "
            "updates write optimizer.updates_per_batch=4 optimizer.mini_batch_rollouts=null, for a fixed size of an "
            "update optimizer.updates_per_batch=null optimizer.mini_batch_rollouts=128."
        )
    if optimizer.updates_per_batch is not None and optimizer.updates_per_batch > generated:
        yield (
            f"optimizer.updates_per_batch is {optimizer.updates_per_batch}, but a step has only {generated} rollouts "
            f"({batch.questions_per_step} questions × {batch.rollouts}): lower it to at most {generated}."
        )
    for index, beta in enumerate(optimizer.betas):
        if not 0 <= beta < 1:
            yield (
                f"optimizer.betas is {list(optimizer.betas)}: item {index + 1} must be at least 0 and less than 1. "
                "For example: optimizer.betas=[0.9, 0.999]"
            )
    if isinstance(config.adaptive, ARSConfig) and config.adaptive.n_min > batch.rollouts:
        yield (
            f"adaptive.n_min is {config.adaptive.n_min}, more than batch.rollouts {batch.rollouts}, from which the "
            "number of rollouts can only shrink: lower it, for example adaptive.n_min=2."
        )


def _algorithm_errors(config: RunConfig) -> Iterator[str]:
    algorithm, sampling = config.algorithm, config.sampling
    if algorithm.importance_correction is not None and (sampling.top_p < 1 or sampling.top_k > 0):
        yield (
            f"algorithm.importance_correction is set with sampling.top_p {sampling.top_p} and sampling.top_k "
            f"{sampling.top_k}: the engine then draws from a renormalised part of the distribution that the trainer "
            "does not see, so the weights would be wrong. Write sampling.top_p=1 sampling.top_k=0, or "
            "algorithm.importance_correction=null."
        )
    if algorithm.dual_clip is not None and algorithm.dual_clip <= 1 + algorithm.clip_high:
        yield (
            f"algorithm.dual_clip is {algorithm.dual_clip}, not more than 1 + algorithm.clip_high = "
            f"{1 + algorithm.clip_high:g}: it would bind inside the range that clipping leaves free. "
            "For example: algorithm.dual_clip=3.0, or null for none."
        )
    penalty = algorithm.overlong_penalty
    if penalty is not None and penalty.cache > penalty.max_length:
        yield (
            f"algorithm.overlong_penalty.cache is {penalty.cache}, more than its max_length {penalty.max_length}: the "
            "penalty begins at max_length - cache tokens. For example: algorithm.overlong_penalty.cache="
            f"{max(1, penalty.max_length // 4)}"
        )


def _engine_errors(config: RunConfig) -> Iterator[str]:
    engine = config.engine
    longest = config.data.max_prompt_tokens + config.sampling.max_tokens
    if isinstance(engine, VllmEngineConfig) and engine.max_model_len is not None and engine.max_model_len < longest:
        yield (
            f"engine.max_model_len is {engine.max_model_len}, less than the longest prompt plus the longest response, "
            f"{config.data.max_prompt_tokens} + {config.sampling.max_tokens}: write engine.max_model_len={longest}, or "
            "null to have it follow."
        )
    if isinstance(engine, ReplayEngineConfig):
        if config.algorithm.dynamic_sampling is not None:
            yield (
                "engine.type is replay with algorithm.dynamic_sampling: a replay has only the recorded rollouts and "
                "cannot draw other questions. Write algorithm.dynamic_sampling=null."
            )
        if config.eval.at_start or config.eval.at_end or config.eval.every is not None:
            yield (
                "engine.type is replay with an evaluation: a replay cannot answer new questions. Write "
                "eval.at_start=false eval.at_end=false eval.every=null, and evaluate the run afterwards with "
                "`fastrl eval`."
            )
        if config.run_dir is not None and engine.run == config.run_dir:
            yield f"engine.run and run_dir are both {engine.run}: a run cannot replay itself. Choose another run_dir."


def _data_errors(config: RunConfig) -> Iterator[str]:
    data = config.data
    if data.min_pixels is not None and data.max_pixels is not None and data.min_pixels > data.max_pixels:
        yield (
            f"data.min_pixels is {data.min_pixels}, more than data.max_pixels {data.max_pixels}. For example: "
            "data.min_pixels=262144 data.max_pixels=4194304"
        )
    if config.eval.temperature == 0 and config.eval.rollouts > 1:
        yield (
            f"eval.temperature is 0 with eval.rollouts {config.eval.rollouts}: greedy responses to a question are all "
            "the same. Write eval.rollouts=1, or a temperature such as eval.temperature=0.6."
        )


def _selection_warnings(config: RunConfig) -> Iterator[str]:
    pruning = config.pruning
    if isinstance(config.adaptive, ARSConfig) and isinstance(pruning, NoPruningConfig):
        yield (
            "adaptive.type is ars without pruning: it lowers the number of rollouts by what pruning leaves, so the "
            "number stays at batch.rollouts. Choose a pruning, or --no-adaptive."
        )
    if (
        config.algorithm.overlong_penalty is not None
        and isinstance(pruning, (MDAPConfig, AdvantageOnlyConfig))
        and pruning.group_by == "adv_round4"
    ):
        yield (
            "algorithm.overlong_penalty with pruning.group_by adv_round4: the penalty makes almost every reward "
            "different, so nearly nothing is pruned. Write pruning.group_by=reward."
        )


def _algorithm_warnings(config: RunConfig) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.ratio == "sequence" and algorithm.clip_high > 0.05:
        yield (
            f"algorithm.ratio is sequence with algorithm.clip_high {algorithm.clip_high}: a sequence's mean ratio "
            "moves so little that it will not clip. GSPO's range is clip_low 0.0003, clip_high 0.0004."
        )
    penalty = algorithm.overlong_penalty
    if penalty is not None and penalty.max_length - penalty.cache >= config.sampling.max_tokens:
        yield (
            f"algorithm.overlong_penalty begins at {penalty.max_length - penalty.cache} tokens, but "
            f"sampling.max_tokens is {config.sampling.max_tokens}: no response is long enough for it."
        )


def _null(value: object) -> str:
    return "null" if value is None else str(value)
