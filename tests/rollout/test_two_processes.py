"""One engine a process under a launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastrl_cli.rollout.select import vllm_obstacle
from tests.tiny_models import Kind

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.vllm
def test_each_process_has_an_engine_and_the_trainers_collective_calls_still_work(
    model_folder: Callable[[Kind], Path],
) -> None:
    if (obstacle := vllm_obstacle()) is not None:
        pytest.skip(obstacle)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"),
            *("-m", "tests.rollout.two_engines", str(model_folder("qwen2_5_vl"))),
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert {"rank 0 is done", "rank 1 is done"} <= set(result.stdout.splitlines())
