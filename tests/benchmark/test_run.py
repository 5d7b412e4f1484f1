"""The arithmetic of the benchmark."""

from __future__ import annotations

import pytest
from rich.console import Console

from fastrl_cli.benchmark.learning import LARGEST_CHANGE, LEAST_GAIN, Outcome, Setting, markdown, settings
from fastrl_cli.benchmark.run import BenchResult, compare, method_configs, summarize
from fastrl_cli.reporting.metrics import PHASES


def line(seconds: float, kept: int = 2) -> dict[str, float]:
    phases = {f"phase_seconds/{phase}": seconds / len(PHASES) for phase in PHASES}
    tokens = {f"tokens/{kind}": 10.0 for kind in ("generated", "forward", "trained")}
    return {"step_seconds": seconds, "rollouts/generated": 8, "rollouts/kept": kept, **phases, **tokens}


@pytest.mark.parametrize(
    ("slow", "fast", "verdict"),
    [([2.0] * 6, [1.0] * 6, "faster"), ([1.0] * 6, [2.0] * 6, "slower"), ([1, 3, 1, 3], [2, 2, 2, 2], "inconclusive")],
)
def test_the_verdict_follows_from_whether_the_interval_holds_one(slow, fast, verdict):
    speed = compare(84, [line(s) for s in slow], [line(s) for s in fast])
    assert speed.verdict == verdict
    assert speed.interval[0] <= speed.ratio <= speed.interval[1]


def test_ratios_are_of_paired_steps():
    assert compare(84, [line(2), line(20), line(200)], [line(1), line(10), line(100)]).interval == (2.0, 2.0)


def test_sums_and_medians():
    method = summarize("grpo", 84, [line(1.0), line(3.0), line(100.0, kept=8)])
    assert sum(method.phase_milliseconds.values()) == pytest.approx(3000)
    assert method.tokens == {"generated": 30, "forward": 30, "trained": 30}
    assert method.kept_fraction == pytest.approx(12 / 24)


def test_both_methods_differ_in_pruning_and_rollout_count_alone():
    configs = method_configs(448)
    plain, fastrl = (configs[name].model_dump() for name in ("grpo", "fastrl"))
    assert {name for name in plain if plain[name] != fastrl[name]} == {"pruning", "adaptive"}
    assert plain["builtin"]["picture_size"] == 448


def test_a_table_fits_a_plain_terminal():
    methods = [summarize(name, size, [line(1.0)]) for size in (84, 448) for name in ("grpo", "fastrl")]
    speeds = [compare(size, [line(2.0)], [line(1.0)]) for size in (84, 448)]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(BenchResult("vllm", 2, 0.0, methods, speeds).render())
    text = console.export_text()
    assert all(phase in text for phase in PHASES)
    assert "…" not in text


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
    command = planned[-1].command(__import__("pathlib").Path("run"))
    assert command[:2] == ["fastrl", "train"]
    assert command[-1] == "reward.shuffle=true"
