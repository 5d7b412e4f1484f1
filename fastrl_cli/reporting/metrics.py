"""Every metric's name, unit and meaning. A name never changes once it is here, and one that is not here is refused.

In the program and in trackers a name is flat (`reward/mean`). In `metrics.jsonl` and `evaluations.jsonl` each slash is
a level of nesting (`{"reward": {"mean": ...}}`), so that a line has the shape of the document of `fastrl train --json`.
`pandas.json_normalize(lines, sep="/")` gives the flat names back, as `metrics_file.read_metrics` does.

`metrics.jsonl` has one line a training step, `evaluations.jsonl` one an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Metrics: TypeAlias = Mapping[str, float]
"""Flat names to numbers. What was not measured is absent, never zero."""

PHASES = ("generate", "reward", "advantage", "select", "old", "reference", "update", "sync", "other")
"""The phases of a step, in order. `other` is what the step took beyond them."""

VARYING = ("seconds", "time", "tokens_per", "mem", "rss")
"""A metric with one of these in its name differs between two runs that are otherwise bit for bit the same."""


@dataclass(frozen=True)
class Metric:
    """One row of the table. A name that ends in `*` stands for every name with that beginning."""

    name: str
    unit: str
    meaning: str


_STEP = (
    Metric("step", "steps", "training steps done: batches of rollouts, counted from 1"),
    Metric("epoch", "epochs", "passes over the training questions begun and finished so far, with its fraction"),
    Metric("optimizer_steps", "optimiser steps", "optimiser steps done over the whole run, skipped ones not counted"),
    Metric("samples", "questions", "questions drawn over the whole run"),
    Metric("policy_version", "updates", "number of the weights that generated this step's rollouts"),
    Metric("rollouts_per_question", "rollouts", "rollouts generated for each question in this step (n)"),
    Metric("rollouts/generated", "rollouts", "rollouts generated in this step"),
    Metric("rollouts/kept", "rollouts", "rollouts trained on in this step, the fill included"),
    Metric("reward/mean", "reward", "mean total reward of the generated rollouts"),
    Metric("reward/std", "reward", "standard deviation of the total reward over the generated rollouts"),
    Metric("reward/parse_fail_rate", "fraction", "generated rollouts without an answer that could be parsed"),
    Metric("reward/*", "reward", "mean of a named part of the reward as it enters the total: accuracy, format, ..."),
    Metric("groups/zero_std_fraction", "fraction", "groups whose rewards are all equal, so that they teach nothing"),
    Metric("advantage/abs_mean", "advantage", "mean absolute advantage of the generated rollouts"),
    Metric("kept_fraction", "fraction", "rollouts kept of those generated in this step, the fill included"),
    Metric("kept/mean", "rollouts", "mean number of rollouts kept of a question, the fill included"),
    Metric("kept/max", "rollouts", "largest number of rollouts kept of a question, the fill included"),
    Metric("kept/unaligned", "0 or 1", "1 where there were too few rollouts to fill up to the divisor"),
    Metric("kept/reason/*", "rollouts", "rollouts kept or left out for one reason of the selector"),
    Metric("dynamic/rounds", "rounds", "rounds of generation that dynamic sampling took"),
    Metric("dynamic/dropped_groups", "groups", "groups that dynamic sampling set aside for lack of spread in accuracy"),
    Metric("response/length_mean", "tokens", "mean length of the generated responses, the end token included"),
    Metric("response/truncated_fraction", "fraction", "responses that reached the limit without an end token"),
    Metric("tokens/generated", "tokens", "response tokens generated in this step"),
    Metric("tokens/forward", "tokens", "tokens that went through a training-time forward pass: old, reference, update"),
    Metric("tokens/padding", "tokens", "padding among the tokens of `tokens/forward`"),
    Metric("tokens/trained", "tokens", "response tokens of the kept rollouts, which the loss is made of"),
    Metric("tokens_per_second", "tokens/s", "response tokens generated in this step, by its seconds"),
    Metric("step_seconds", "seconds", "wall time of the step; evaluation and checkpoints are not part of it"),
    *(Metric(f"phase_seconds/{phase}", "seconds", f"wall time of the phase `{phase}`") for phase in PHASES),
    Metric("loss/policy", "loss", "policy loss, mean over the step's updates"),
    Metric("loss/kl", "nats", "estimated KL divergence to the reference model, before its coefficient"),
    Metric("loss/total", "loss", "what was differentiated: policy loss and KL times its coefficient"),
    Metric("ratio/mean", "ratio", "mean probability ratio of the new policy to the old one"),
    Metric("ratio/clip_fraction", "fraction", "tokens whose gradient the clipping stopped"),
    Metric("entropy", "nats", "entropy of the sampled distribution, mean over the trained tokens"),
    Metric("grad_norm", "norm", "gradient norm before clipping, mean over the step's updates"),
    Metric("learning_rate", "learning rate", "learning rate of the step's last update"),
    Metric("importance_weight/mean", "ratio", "mean truncated importance weight for the gap to the engine"),
    Metric("gap/logprob_abs_mean", "nats", "mean absolute difference between the engine's and the trainer's log-probs"),
    Metric("gap/logprob_abs_max", "nats", "largest absolute difference of the same"),
    Metric("gap/kl", "nats", "estimated KL divergence (k3) of the engine's distribution to the trainer's"),
    Metric("faults/bad_images", "questions", "questions set aside in this step for a picture that cannot be used"),
    Metric("faults/overlong_prompts", "questions", "questions set aside in this step for a prompt over the limit"),
    Metric(
        "faults/bad_questions", "questions", "questions set aside in this step because no prompt can be made of them"
    ),
    Metric(
        "faults/reward_failures", "rollouts", "rollouts set aside in this step because their grading crashed or hung"
    ),
    Metric("faults/skipped_steps", "optimiser steps", "updates skipped for a non-finite loss or gradient"),
    Metric("mem/rss_bytes", "bytes", "resident memory of the process at the end of the step"),
)

_EVALUATION = (
    Metric("eval/accuracy", "fraction", "right responses to the validation questions"),
    Metric("eval/accuracy_low", "fraction", "lower end of the accuracy's 95 % Wilson interval over questions"),
    Metric("eval/accuracy_high", "fraction", "upper end of the accuracy's 95 % Wilson interval over questions"),
    Metric("eval/format", "fraction", "well-formed responses"),
    Metric("eval/parse_fail_rate", "fraction", "responses without an answer that could be parsed"),
    Metric("eval/length_mean", "tokens", "mean length of a response, the end token included"),
    Metric("eval/truncated_fraction", "fraction", "responses that reached the limit without an end token"),
    Metric("eval/questions", "questions", "validation questions asked"),
    Metric("eval/rollouts", "rollouts", "responses to each question"),
    Metric("eval/kind/*", "fraction", "accuracy on one kind of question, where the data set names kinds"),
    Metric("eval_seconds", "seconds", "wall time of the evaluation"),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _STEP + _EVALUATION}
"""The whole table."""

FAULTS = tuple(name.removeprefix("faults/") for name in METRICS if name.startswith("faults/"))
"""What can be set aside without an end of the run."""


def lookup(name: str) -> Metric:
    """The row of a flat name. Raises `KeyError` for a name the table does not have."""
    if name in METRICS:
        return METRICS[name]
    families = [row for row in METRICS.values() if row.name.endswith("*") and name.startswith(row.name[:-1])]
    if not families:
        raise KeyError(f"`{name}` is not in the table of metrics (fastrl_cli/reporting/metrics.py)")
    return max(families, key=lambda row: len(row.name))


def validate(names: Iterable[str]) -> None:
    """Raise `KeyError` for the first name that the table does not have."""
    for name in names:
        lookup(name)


def is_reproducible(name: str) -> bool:
    """True where two runs of one configuration on one machine must agree bit for bit (transformers engine, CPU)."""
    return not any(part in name for part in VARYING)
