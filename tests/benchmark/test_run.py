"""The benchmark from processes to table."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console

from fastrl_cli.benchmark.contender import Contender, Measured
from fastrl_cli.benchmark.learning import LARGEST_CHANGE, LEAST_GAIN, Outcome, Setting, markdown, settings
from fastrl_cli.benchmark.run import TOKENS, WARM_UP_STEPS, bench, figures_of, summarize
from fastrl_cli.benchmark.suites import Suite, configured
from fastrl_cli.errors import FastRLError
from fastrl_cli.reporting.metrics import PHASES
from fastrl_cli.reporting.progress import QuietReporter

SMALL = (
    "batch.questions_per_step=2", "batch.rollouts=4", "sampling.max_tokens=8", "builtin.train_size=8",
    "builtin.validation_size=4", "engine.type=transformers",
)  # fmt: skip


def measured(name: str, seconds: list[float]) -> Measured:
    """As many steps as there are seconds, all alike."""
    one = Measured(name, "vllm", updates_before=2.0, peak_rss_bytes=2**30)
    for number, spent in enumerate(seconds):
        one.metrics.append(
            {
                "step_seconds": spent, "rollouts/generated": 8, "rollouts/kept": 2, "rollouts_per_question": 4,
                "optimizer_steps": 3.0 + number,
                **{f"phase_seconds/{phase}": spent / len(PHASES) for phase in PHASES},
                **{f"tokens/{kind}": 10.0 for kind in TOKENS},
            }
        )  # fmt: skip
        one.cpu_seconds.append(2 * spent)
    return one


def test_sums_and_medians() -> None:
    figures = figures_of(measured("grpo", [1.0, 3.0, 100.0]))
    assert figures.seconds.value == 3.0 and figures.cpu_seconds.value == 6.0
    assert sum(figures.phase_milliseconds.values()) == pytest.approx(3000)
    assert figures.tokens == dict.fromkeys(TOKENS, 30)
    assert figures.kept_fraction == pytest.approx(6 / 24)
    assert figures.optimizer_steps == 3


def test_each_contender_is_compared_with_the_baseline() -> None:
    suite = Suite("s", [Contender(name, configured("grpo")) for name in ("a", "b", "c")], "a")
    figures = summarize(suite, [measured("a", [4.0] * 5), measured("b", [2.0] * 5), measured("c", [8.0] * 5)])
    assert [(one.other, one.speed_up.value, one.verdict) for one in figures.comparisons] == [
        ("b", 2.0, "faster"),
        ("c", 0.5, "slower"),
    ]


def contender(name: str, *overrides: str) -> Contender:
    return Contender(name, configured("grpo", *SMALL, *overrides))


def test_two_contenders_take_turns_with_the_same_questions_and_updates() -> None:
    plain = contender("grpo", "pruning={type: none}", "adaptive={type: fixed}")
    suite = Suite("small", [plain, contender("fastrl")], "grpo", fixed_length=True)
    result = bench("small", [suite], steps=2, seconds=None, threads=1, reporter=QuietReporter())
    grpo, fastrl = result.suites[0].methods
    for method in (grpo, fastrl):
        assert len(method.step_seconds) == 2 and method.optimizer_steps == 2
        assert method.tokens["generated"] == 2 * 2 * 4 * 8, "every response has its full length"
        assert 0 < method.peak_rss_bytes < 2**33 and method.cpu_seconds.value > 0
    assert grpo.kept_fraction == 1.0
    assert fastrl.tokens["forward"] <= grpo.tokens["forward"]
    document = result.document()
    assert document["protocol"]["warm_up_steps"] == WARM_UP_STEPS and document["machine"]["threads"] == 1
    assert result.least_speed_up() == result.suites[0].comparisons[0].speed_up.low


def test_a_suite_may_measure_accuracy() -> None:
    suite = Suite("small", [contender("grpo")], "grpo", evaluates=True)
    (method,) = bench("small", [suite], steps=1, seconds=None, threads=1, reporter=QuietReporter()).suites[0].methods
    assert method.accuracy_before["questions"] == 4 and 0 <= method.accuracy_after["accuracy"] <= 1


def test_a_contender_that_fails_says_why() -> None:
    suite = Suite("s", [contender("grpo", "model.path=/nowhere")], "grpo")
    with pytest.raises(FastRLError, match=r"(?s)the process of grpo ended.*no such folder"):
        bench("s", [suite], steps=1, seconds=None, threads=1, reporter=QuietReporter())


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="the optional package trl is not installed")
def test_trl_takes_turns_on_the_same_questions_lengths_and_updates() -> None:
    settings = (*SMALL, "optimizer.updates_per_batch=2", "pruning={type: none}")
    ours = Contender("grpo", configured("grpo", *settings, "adaptive={type: fixed}"))
    trl = Contender("trl", ours.config, "fastrl_cli.benchmark.trl_worker")
    suite = Suite("peer", [trl, ours], "trl", fixed_length=True)
    result = bench("peer", [suite], steps=2, seconds=None, threads=1, reporter=QuietReporter())
    theirs, own = result.suites[0].methods
    assert theirs.tokens["generated"] == own.tokens["generated"]
    assert theirs.optimizer_steps == own.optimizer_steps == 4
    assert theirs.tokens["forward"] > own.tokens["forward"], "a prompt for each rollout, against one for each question"


def test_a_table_fits_a_plain_terminal() -> None:
    suite = Suite("448 × 448", [Contender(name, configured("grpo")) for name in ("grpo", "fastrl")], "grpo")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summarize(suite, [measured("grpo", [2.0] * 3), measured("fastrl", [1.0] * 3)]).render())
    text = console.export_text()
    assert all(phase in text for phase in PHASES)
    assert "fastrl is faster" in text and "2.00x" in text and "…" not in text


def outcome(gain: float, control: str = "") -> Outcome:
    return Outcome(Setting("grpo", "vllm", 0, control), 0.4, 0.4 + gain, 100.0, 0.3, 8, 7)


def test_the_bars_are_those_of_learning_and_of_the_controls():
    assert outcome(LEAST_GAIN + 0.001).holds
    assert not outcome(LEAST_GAIN - 0.001).holds
    assert outcome(-LARGEST_CHANGE + 0.001, "rewards permuted").holds
    assert not outcome(LARGEST_CHANGE + 0.001, "rewards permuted").holds
    assert "MISSED" in markdown([outcome(0.0)])


def test_every_algorithm_engine_and_seed_is_run_and_both_controls():
    planned = list(settings(("vllm", "transformers"), (0, 1, 2)))
    assert len(planned) == len(set(planned)) == 2 * 3 * 3 + 2 * 3
    command = planned[-1].command(Path("run"))
    assert command[:2] == ["fastrl", "train"]
    assert command[-1] == "reward.shuffle=true"
