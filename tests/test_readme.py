"""Every command of the README runs as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import environment, train

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
FAST = ("--dry-run", "fastrl --help")


def test_it_opens_with_the_two_commands_of_the_set_up():
    first_block = README.index("```sh")
    assert first_block < 20
    assert COMMANDS[:2] == ["make train", "make test"]
    for target in ("train", "test"):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the README with this interpreter's `fastrl`, from a folder beside the shared samples as a checkout
    lies."""
    words = shlex.split(command)
    assert words[0] == "fastrl", command
    return subprocess.run(
        [sys.executable, "-m", "fastrl_cli", *words[1:]],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def checkout(tmp_path: Path) -> Path:
    """A folder with the recipes, and the shared samples beside it where they are there."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(ROOT / "configs", folder / "configs")
    shared = ROOT.parent / "shared"
    if shared.is_dir():
        (tmp_path / "shared").symlink_to(shared)
    return folder


@pytest.mark.parametrize("command", [c for c in COMMANDS if any(part in c for part in FAST)])
def test_quick_commands(command: str, tmp_path: Path):
    done = run(command, checkout(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("fastrl") and "--dry-run" not in c])
def test_long_commands(command: str, tmp_path: Path):
    folder = checkout(tmp_path)
    if "../shared" in command and not (tmp_path / "shared").exists():
        pytest.skip("no samples of public data sets beside the checkout")
    if "runs/example" in command and "--run-dir" not in command:
        train(folder / "runs" / "example", "--steps", "2")
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
