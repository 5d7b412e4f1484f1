"""Memory over many steps, on the engines that people use."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastrl_cli.reporting.metrics_file import read_metrics
from fastrl_cli.rollout.select import vllm_obstacle
from tests.commands.conftest import train


def resident(run_dir: Path, engine: str, *options: str) -> list[float]:
    """Resident memory after each step of a run."""
    if engine == "vllm" and (obstacle := vllm_obstacle()):
        pytest.skip(obstacle)
    train(run_dir, "eval.at_start=false", "eval.at_end=false", *options, engine=engine)
    return [line["mem/rss_bytes"] for line in read_metrics(run_dir / "metrics.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_row_30_memory_does_not_grow_over_steps_with_pictures(tmp_path: Path, engine: str):
    memory = resident(tmp_path / "run", engine, "--steps", "90", "builtin.picture_size=448", "builtin.train_size=270")
    assert max(memory[-10:]) <= 1.03 * max(memory[30:40])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_memory_of_300_steps_is_that_of_50(tmp_path: Path, engine: str):
    memory = resident(tmp_path / "run", engine, "--steps", "300")
    assert max(memory[-10:]) <= 1.03 * max(memory[40:50])
