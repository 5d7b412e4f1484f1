"""Checkpoints: written beside and renamed, checked by their own list of files, the newest whole one found again.

A checkpoint is a model folder that transformers and vLLM load as it is, with a folder `trainer/` in it: `state.json`
(what the run knows), `tensors.pt` (optimiser and random generators) and `files.json` (size and SHA-256 of every file,
written last)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastrl_cli.errors import DataError

FILES = Path("trainer/files.json")
STATE = Path("trainer/state.json")
TENSORS = Path("trainer/tensors.pt")
NO_SPACE_BYTES = 2**20
"""A disk with less free space than this counts as full."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    folder: Path
    state: dict[str, Any]
    """As JSON keeps it: step, counters, and the `state_dict` of each part that has one."""

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def tensors(self) -> dict[str, Any]:
        """Optimiser and generator states, on the CPU."""
        loaded: dict[str, Any] = torch.load(self.folder / TENSORS, map_location="cpu", weights_only=True)
        return loaded


def random_states() -> dict[str, Any]:
    """The states of the global random generators, in types that `torch.load(weights_only=True)` takes."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Put `random_states` back."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checkpoint_folder(run_dir: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return run_dir / "checkpoints" / f"step_{step:06d}"


def write_checkpoint(
    run_dir: Path, save_model: Callable[[Path], None], state: dict[str, Any], tensors: dict[str, Any], keep: int
) -> Path:
    """Write the checkpoint of `state["step"]`, then remove all but the newest `keep`. Raises OSError where the disk
    is full; the checkpoints before it are then untouched."""
    folder = checkpoint_folder(run_dir, int(state["step"]))
    beside = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "trainer").mkdir(parents=True)
    try:
        save_model(beside)
        (beside / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
        torch.save(tensors, beside / TENSORS)
        files = sorted(path for path in beside.rglob("*") if path.is_file())
        for path in files:
            path.chmod(beside.stat().st_mode & 0o666)  # safetensors writes for the owner alone, whatever the umask
        listing = {str(path.relative_to(beside)): [path.stat().st_size, _digest(path)] for path in files}
        (beside / FILES).write_text(json.dumps(listing, indent=1), encoding="utf-8")
        for path in [*files, beside / FILES]:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    except BaseException as error:
        is_full = shutil.disk_usage(folder.parent).free < NO_SPACE_BYTES
        shutil.rmtree(beside, ignore_errors=True)
        if is_full and isinstance(error, Exception):  # torch and safetensors have errors of their own for it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(beside, folder)
    for old in sorted(folder.parent.glob("step_??????"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None where every listed file is there with its size and hash."""
    try:
        listing = json.loads((folder / FILES).read_text(encoding="utf-8"))
        if missing := {str(STATE), str(TENSORS)} - set(listing):
            return f"{FILES} does not list {' and '.join(sorted(missing))}"
        for name, (size, digest) in listing.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size or _digest(path) != digest:
                return f"{name} is damaged"
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return f"{FILES} cannot be read ({type(error).__name__})"
    return None


def set_aside_after(run_dir: Path, step: int) -> None:
    """Rename the checkpoints of steps after `step`, all of them damaged where a run goes on from `step`: a later one of
    the same name, or the rule that keeps the newest, would else take them for sound."""
    for folder in (run_dir / "checkpoints").glob("step_??????"):
        if int(folder.name.removeprefix("step_")) > step:
            shutil.rmtree(aside := folder.with_name(f"{folder.name}.damaged"), ignore_errors=True)
            os.replace(folder, aside)


def newest_whole(run_dir: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint without damage; the damaged ones after it are named through `warn`. None where the run has
    written none yet. Raises DataError where there are checkpoints and none is whole."""
    folders = sorted((run_dir / "checkpoints").glob("step_??????"), reverse=True)
    for folder in folders:
        trouble = damage(folder)
        if trouble is None:
            return Checkpoint(folder, json.loads((folder / STATE).read_text(encoding="utf-8")))
        warn(f"checkpoint {folder} is not whole: {trouble}; looking for an older one")
    if folders:
        raise DataError(f"{run_dir}: none of its {len(folders)} checkpoints is whole. Start a new run directory.")
    return None
