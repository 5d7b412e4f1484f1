"""Contenders differ in what their suite is about, and in nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from fastrl_cli.benchmark.suites import PEERS, SUITES, Suite


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flat settings of a configuration."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def sections_that_differ(suite: Suite) -> set[str]:
    settings = [leaves(contender.config.model_dump()) for contender in suite.contenders]
    names = set().union(*settings)
    return {name.split(".")[0] for name in names if len({str(one.get(name)) for one in settings}) > 1}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("quick", {"pruning", "adaptive"}),
        ("factors", {"pruning", "adaptive", "engine", "model"}),
        ("paper", {"pruning", "adaptive"}),
        ("trl", {"pruning", "adaptive", "engine"}),
    ],
)
def test_contenders_differ_in_what_is_compared_alone(name: str, allowed: set[str]) -> None:
    for suite in {**SUITES, **PEERS}[name]():
        assert sections_that_differ(suite) <= allowed
        assert suite.contenders[0].name == suite.baseline
        assert len({contender.name for contender in suite.contenders}) == len(suite.contenders)


def test_every_suite_is_tested_here() -> None:
    assert {*SUITES, *PEERS} == {"quick", "factors", "paper", "trl"}


def test_the_papers_shape_has_the_passes_and_updates_that_the_paper_has() -> None:
    suites = SUITES["paper"]()
    assert [suite.contenders[0].config.algorithm.name for suite in suites] == ["grpo", "dapo", "gspo"]
    for suite in suites:
        for contender in suite.contenders:
            config = contender.config
            assert config.algorithm.old_logprobs == "recompute" and config.model.layout == "rows"
            assert config.optimizer.updates_per_batch == 4
            assert (config.algorithm.kl.coefficient > 0) == (config.algorithm.name == "grpo")
