"""Which engine the set-up chooses, and that it says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastrl_cli import install


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """A machine of one's own making; the default is this project's usual one, without a GPU."""

    def make(gpu=False, system="Linux", architecture="x86_64", flags="avx2 avx512f", torch=True):
        monkeypatch.setattr(install, "has_nvidia_gpu", lambda: gpu)
        monkeypatch.setattr(install.platform, "system", lambda: system)
        monkeypatch.setattr(install.platform, "machine", lambda: architecture)
        monkeypatch.setattr(install, "cpu_flags", lambda: flags)
        monkeypatch.setattr(install, "pip_finds_torch", lambda python: torch)
        return install.choose("python")

    return make


def test_a_gpu_gets_the_cuda_build_and_a_cpu_the_other(machine):
    assert machine(gpu=True).extra == "gpu"
    assert machine().extra == "cpu"


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"system": "Darwin", "architecture": "arm64"}, "no wheel for Darwin"),
        ({"flags": "sse4_2"}, "AVX2"),
        ({"torch": False}, "pip finds no torch"),
    ],
)
def test_where_vllm_cannot_be_had_transformers_stands_alone_and_the_reason_is_said(machine, setting, why):
    choice = machine(**setting)
    assert choice.extra is None
    assert why in choice.reason
    assert "transformers engine alone" in choice.reason
    assert choice.download


def test_the_install_says_what_it_downloads_and_installs_the_choice(machine, monkeypatch, capsys):
    machine()
    commands: list[list[str]] = []
    monkeypatch.setattr(install.subprocess, "run", lambda command, **_: commands.append(command))
    assert install.main([sys.executable]) == 0
    said = capsys.readouterr().err
    assert "no NVIDIA GPU" in said
    assert "downloads" in said
    assert any(part.endswith("[dev,cpu]") for part in commands[0])
    assert "torchaudio" in commands[1]


def test_the_setup_needs_the_standard_library_alone():
    imported = {
        line.split()[1].partition(".")[0]
        for line in Path(install.__file__).read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported <= {*sys.stdlib_module_names, "__future__"}
