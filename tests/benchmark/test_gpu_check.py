"""The check for a machine with a GPU, on a CPU and with little installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ABSENT = ("vllm", "typer", "datasets", "math_verify", "qwen_vl_utils")


def test_it_needs_neither_vllm_nor_typer_nor_datasets(tmp_path: Path) -> None:
    blocked = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\n"
    code = f"{blocked}sys.argv = ['gpu_check', '--small', '--output', 'o.json']\n"
    code += "from fastrl_cli.benchmark.gpu_check import main; main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "o.json").read_text())
    assert json.loads(done.stdout) == document
    for layout in ("shared_prefix", "rows"):
        stages = document["seconds"][layout]
        assert set(stages) == {"pack", "old pass", "forward and backward", "optimiser"}
        assert all(seconds > 0 for seconds in stages.values())
    prompt, response = 8 + 2 + 8, 6 - 1
    assert document["forward_tokens"] == {"shared_prefix": 2 * (prompt + 3 * response), "rows": 6 * (prompt + response)}
    assert "shared prefix is" in done.stderr
