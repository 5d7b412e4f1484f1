"""When a run directory may be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastrl_cli.errors import MissingError, UsageError
from fastrl_cli.training.run_directory import RunDirectory, check_new, check_resumable, check_writable


def test_a_new_or_empty_directory_is_fine_and_stays_unwritten(tmp_path: Path):
    check_new(tmp_path / "a" / "b")
    check_new(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_is_refused_with_the_way_to_go_on(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"not empty.*--resume"):
        check_new(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        check_new(tmp_path / "file")


def test_no_permission_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(MissingError, match=r"no permission to write in .*--run-dir"):
        check_writable(tmp_path / "run")


def test_a_full_disk_is_seen_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000, "all": usage})())
    with pytest.raises(MissingError, match="MiB free"):
        check_writable(tmp_path / "run")


def test_only_a_run_can_be_resumed(tmp_path: Path):
    with pytest.raises(UsageError, match="no such directory"):
        check_resumable(tmp_path / "none")
    with pytest.raises(UsageError, match=r"config\.resolved\.yaml and manifest\.json missing"):
        check_resumable(tmp_path)
    RunDirectory(tmp_path).create("seed: 0\n", {"a": 1}, resumed=False)
    check_resumable(tmp_path)


def test_a_directory_is_held_by_one_process_at_a_time(tmp_path: Path):
    directory = RunDirectory(tmp_path / "run")
    with directory.claim(fresh=True), pytest.raises(UsageError, match="in use by another process"):
        directory.claim(fresh=False)
    (directory.path / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        directory.claim(fresh=True)
    directory.claim(fresh=False).close()


def test_a_file_in_the_way_is_a_mistake_of_the_command(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        check_writable(tmp_path / "file" / "run")
