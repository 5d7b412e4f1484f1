"""Memory over many steps with pictures, on the engine that people use."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastrl_cli.reporting.metrics_file import read_metrics
from fastrl_cli.rollout.select import vllm_obstacle
from tests.commands.conftest import train


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_row_30_memory_does_not_grow_over_steps_with_pictures(tmp_path: Path, engine: str):
    if engine == "vllm" and (obstacle := vllm_obstacle()):
        pytest.skip(obstacle)
    train(
        tmp_path / "run", "--steps", "90", "builtin.picture_size=448", "builtin.train_size=270",
        "eval.at_start=false", "eval.at_end=false", engine=engine,
    )  # fmt: skip
    resident = [line["mem/rss_bytes"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert max(resident[-10:]) <= 1.03 * max(resident[30:40])
