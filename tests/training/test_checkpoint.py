"""Checkpoints are whole or not there, and the newest whole one is found."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fastrl_cli.errors import DataError
from fastrl_cli.training.checkpoint import (
    FILES,
    checkpoint_folder,
    damage,
    newest_whole,
    random_states,
    restore_random_states,
    set_aside_after,
    write_checkpoint,
)


def save_model(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weights" * 100)


def write(run_dir: Path, step: int, keep: int = 5) -> Path:
    return write_checkpoint(run_dir, save_model, {"step": step}, {"optimizer": torch.arange(5)}, keep)


def test_what_is_written_is_read_back(tmp_path: Path):
    write(tmp_path, 7)
    checkpoint = newest_whole(tmp_path, pytest.fail)
    assert checkpoint is not None
    assert checkpoint.step == 7
    assert torch.equal(checkpoint.tensors()["optimizer"], torch.arange(5))


def test_the_newest_stay(tmp_path: Path):
    for step in (1, 2, 3, 4):
        write(tmp_path, step, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_000003", "step_000004"]


def test_a_run_without_checkpoints_has_none(tmp_path: Path):
    assert newest_whole(tmp_path, pytest.fail) is None


@pytest.mark.parametrize("name", ["model.safetensors", "trainer/state.json", "trainer/tensors.pt", str(FILES)])
@pytest.mark.parametrize("how", ["remove", "truncate", "flip"])
def test_damage_is_found_and_an_older_one_taken(tmp_path: Path, name: str, how: str):
    write(tmp_path, 1)
    path = write(tmp_path, 2) / name
    data = path.read_bytes()
    if how == "remove":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    said: list[str] = []
    checkpoint = newest_whole(tmp_path, said.append)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert "step_000002" in said[0]


def test_only_damaged_ones_are_an_error(tmp_path: Path):
    (write(tmp_path, 1) / "model.safetensors").unlink()
    with pytest.raises(DataError, match="none of its 1 checkpoints is whole"):
        newest_whole(tmp_path, lambda text: None)


def test_a_failed_write_leaves_the_ones_before(tmp_path: Path):
    write(tmp_path, 1)

    def full(folder: Path) -> None:
        (folder / "part").write_bytes(b"x")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path, full, {"step": 2}, {}, 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]
    assert damage(tmp_path / "checkpoints" / "step_000001") is None


def test_a_leftover_of_a_killed_write_is_not_a_checkpoint(tmp_path: Path):
    write(tmp_path, 1)
    (tmp_path / "checkpoints" / "step_000002.tmp" / "trainer").mkdir(parents=True)
    checkpoint = newest_whole(tmp_path, pytest.fail)
    assert checkpoint is not None
    assert checkpoint.step == 1


def test_random_generators_go_on_where_they_were(tmp_path: Path):
    states = random_states()
    file = tmp_path / "states.pt"
    torch.save(states, file)
    expected = (random.random(), np.random.rand(), torch.rand(1).item(), np.random.normal())
    restore_random_states(torch.load(file, weights_only=True))
    assert (random.random(), np.random.rand(), torch.rand(1).item(), np.random.normal()) == expected


def test_the_list_of_files_names_every_file(tmp_path: Path):
    folder = write(tmp_path, 1)
    listed = set(json.loads((folder / FILES).read_text()))
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert listed == there - {str(FILES)}


def test_a_damaged_checkpoint_never_outlives_the_one_written_after_it(tmp_path: Path):
    for step in (3, 6):
        write(tmp_path, step)
    (checkpoint_folder(tmp_path, 6) / "trainer" / "state.json").write_text("{")
    set_aside_after(tmp_path, 3)
    write(tmp_path, 4, keep=1)
    newest = newest_whole(tmp_path, lambda text: None)
    assert newest is not None and newest.step == 4


def test_an_empty_list_of_files_is_damage(tmp_path: Path):
    folder = write(tmp_path, 1)
    (folder / "trainer" / "files.json").write_text("{}")
    assert "does not list" in str(damage(folder))


def test_any_failure_on_a_full_disk_says_that_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(folder: Path) -> None:
        raise RuntimeError("unexpected pos")

    with pytest.raises(RuntimeError):
        write_checkpoint(tmp_path, broken, {"step": 1}, {}, 5)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(tmp_path, broken, {"step": 1}, {}, 5)
