"""Faults are counted by step, and three non-finite steps in a row end the run."""

from __future__ import annotations

import pytest
from accelerate import Accelerator

from fastrl_cli.errors import DivergedError
from fastrl_cli.reporting.metrics import FAULTS
from fastrl_cli.training.faults import Faults


def test_counts_are_of_the_step_and_every_kind_is_reported():
    said: list[str] = []
    faults = Faults(3, said.append, Accelerator(cpu=True))
    faults.note("bad_images", "one")
    faults.note("reward_failures", "four", 4)
    assert faults.metrics() == {
        f"faults/{kind}": {"bad_images": 1.0, "reward_failures": 4.0}.get(kind, 0.0) for kind in FAULTS
    }
    assert not any(faults.metrics().values())
    assert said == ["one", "four"]
    with pytest.raises(ValueError, match="unknown kind"):
        faults.note("typo", "")


def test_row_18_three_in_a_row_stop_the_run_with_exit_code_5():
    faults = Faults(3, lambda text: None, Accelerator(cpu=True))
    for done, skipped in ((0, ["a"]), (0, ["b"]), (1, []), (0, ["c"]), (0, ["d"])):
        faults.updates(done, skipped)
        faults.stop_if_diverged()
    faults.updates(0, ["e"])
    with pytest.raises(DivergedError, match="3 steps in a row") as stopped:
        faults.stop_if_diverged()
    assert stopped.value.exit_code == 5


def test_a_step_without_an_update_neither_counts_nor_clears():
    faults = Faults(2, lambda text: None, Accelerator(cpu=True))
    faults.updates(0, ["a"])
    faults.updates(0, [])
    faults.updates(0, ["b"])
    with pytest.raises(DivergedError):
        faults.stop_if_diverged()


def test_the_count_survives_a_resume():
    faults = Faults(2, lambda text: None, Accelerator(cpu=True))
    faults.updates(0, ["a"])
    other = Faults(2, lambda text: None, Accelerator(cpu=True))
    other.load_state_dict(faults.state_dict())
    other.updates(0, ["b"])
    with pytest.raises(DivergedError):
        other.stop_if_diverged()


class Process:
    """One of two processes, as far as `Faults` looks at it."""

    def __init__(self, rank: int) -> None:
        self.is_main_process = rank == 0
        self.num_processes = 2


def test_the_first_process_says_what_happened_in_the_others(monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    first, second = (Faults(3, said.append, Process(rank)) for rank in (0, 1))
    monkeypatch.setattr("fastrl_cli.training.faults.total", lambda values, accelerator: list(values))
    monkeypatch.setattr("fastrl_cli.training.faults.gather", lambda items, accelerator: list(items))
    second.note("bad_images", "on the second")
    second.note("overlong_prompts", "on both", on_every_rank=True)
    first.note("bad_images", "on the first")
    assert said == ["on the first"]
    second.metrics()
    second.metrics()
    assert said == ["on the first", "on the second"]
