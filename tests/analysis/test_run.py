"""Counts over recorded rollouts, and files that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastrl_cli.analysis.run import analyze
from fastrl_cli.errors import DataError
from fastrl_cli.reporting.progress import QuietReporter


def record(step: int, question: str, index: int, reward: float, kept: bool, **other: object) -> dict[str, object]:
    reason = "seed" if kept else "pruned"
    base = {"step": step, "question_id": question, "draw": 0, "index": index, "reward": reward, "kept": kept}
    return base | {"reason": reason, "token_ids": [1] * (index + 1)} | other


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "rollouts").mkdir()
    steps = {
        1: [record(1, "a", k, 1.5 * (k == 0), k < 2) for k in range(4)],
        2: [record(2, "b", k, 0.5, k == 0) for k in range(4)] + [record(2, "c", k, float(k), True) for k in range(2)],
    }
    for step, records in steps.items():
        lines = "".join(json.dumps(line) + "\n" for line in records)
        (tmp_path / "rollouts" / f"step_{step:06d}.jsonl").write_text(lines)
    return tmp_path


def test_counts_by_step_reward_and_reason(run_dir: Path):
    analysis = analyze(run_dir, reporter=QuietReporter())
    assert [(row.step, row.questions, row.generated, row.kept, row.dead_groups) for row in analysis.steps] == [
        ("1", 1, 4, 2, 0),
        ("2", 2, 6, 3, 1),
    ]
    assert (analysis.total.generated, analysis.total.kept) == (10, 5)
    assert analysis.total.tokens_generated == 10 + 10 + 3
    assert analysis.total.tokens_kept == 3 + 1 + 3
    assert analysis.by_reward["0.5"] == (4, 1)
    assert analysis.reasons == {"seed": 5, "pruned": 5}


def test_one_file_is_enough_and_broken_lines_are_counted(run_dir: Path, capsys):
    file = run_dir / "rollouts" / "step_000002.jsonl"
    file.write_text(file.read_text() + '{"step": 2, "other": "schema"}\n[1]\n{"step": 2, "question_id"')
    analysis = analyze(file, reporter=QuietReporter())
    assert analysis.total.generated == 6
    assert analysis.skipped_lines == 3
    assert "3 lines" in capsys.readouterr().err


def test_nothing_to_read_is_an_error_of_the_data(tmp_path: Path):
    with pytest.raises(DataError, match="no rollouts there"):
        analyze(tmp_path, reporter=QuietReporter())
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match="none of its lines"):
        analyze(tmp_path / "other.jsonl", reporter=QuietReporter())
