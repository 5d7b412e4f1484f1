"""The set-up from nothing, as a newcomer does it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_make_train_in_a_fresh_clone(tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    outside = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(["make", "train"], cwd=clone, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fastrl: engine:" in done.stderr
    before, after = (float(share) for share in re.findall(r"accuracy (?:before|after) *│ ([\d.]+) %", done.stdout))
    assert 30 <= before <= 60
    assert after - before >= 15
    (run_dir,) = (clone / "runs").iterdir()
    assert (run_dir / "report.md").is_file()
