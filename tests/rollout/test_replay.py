"""Replaying recorded rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastrl_cli.data.sample import Sample
from fastrl_cli.errors import DataError
from fastrl_cli.models.prompt import Prompt
from fastrl_cli.rollout.replay import ReplayEngine
from fastrl_cli.rollout.rollout import Sampling


def prompt(question: str) -> Prompt:
    sample = Sample(id=question, source="test", row=0, question="?", answer="1")
    return Prompt(sample, "?", np.array([1], dtype=np.int32))


def line(question: str, seed: int, **changes: Any) -> dict[str, Any]:
    fields = {
        "step": 1,
        "question_id": question,
        "draw": 0,
        "index": 0,
        "seed": seed,
        "policy_version": 4,
        "token_ids": [seed, 7],
        "logprobs": [-0.5, -0.1 * seed],
        "finish_reason": "length" if seed % 2 else "stop",
    }
    return fields | changes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that recorded two steps: question a twice, question b once."""
    (tmp_path / "rollouts").mkdir()
    steps = {1: [line("a", 1), line("a", 2), line("b", 3), line("b", 4)], 2: [line("a", 5), line("a", 6)]}
    for step, lines in steps.items():
        path = tmp_path / "rollouts" / f"step_{step:06d}.jsonl"
        path.write_text("".join(json.dumps(fields) + "\n" for fields in lines))
    return tmp_path


def test_responses_are_found_by_question_and_seed_in_any_order(run: Path) -> None:
    engine = ReplayEngine(run)
    engine.sync([], 9)
    answers = engine.generate([prompt("a"), prompt("b"), prompt("a")], 2, Sampling(), [5, 3, 1])
    assert [[g.token_ids.tolist() for g in group] for group in answers] == [
        [[5, 7], [6, 7]],
        [[3, 7], [4, 7]],
        [[1, 7], [2, 7]],
    ]
    first = answers[0][0]
    assert first.token_ids.dtype == np.int32 and first.logprobs.dtype == np.float32
    assert first.logprobs.tolist() == pytest.approx([-0.5, -0.5])
    assert (first.finish_reason, answers[0][1].finish_reason) == ("length", "stop")
    assert first.policy_version == 4


@pytest.mark.parametrize(
    ("question", "seed", "words"), [("c", 1, "no question c"), ("a", 3, "no response of question a with seed 3")]
)
def test_what_was_not_recorded_is_an_error_that_names_it(run: Path, question: str, seed: int, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ReplayEngine(run).generate([prompt(question)], 1, Sampling(), [seed])


def test_a_directory_without_rollouts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.rollouts=true"):
        ReplayEngine(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"step": 1',
        json.dumps({"step": 1}),
        json.dumps(line("a", 8, logprobs=[0.0])),
        json.dumps(line("a", 8, finish_reason="?")),
    ],
)
def test_a_damaged_line_is_named(run: Path, text: str) -> None:
    with (run / "rollouts" / "step_000002.jsonl").open("a") as file:
        file.write(text)
    with pytest.raises(DataError, match=r"step_000002\.jsonl, line 3"):
        ReplayEngine(run)
