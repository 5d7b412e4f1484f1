"""The result of a run, its table, its report, its manifest and its plan."""

from __future__ import annotations

import io
import json
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from fastrl_cli.config.load import load_config
from fastrl_cli.errors import DataError
from fastrl_cli.reporting.manifest import build_manifest, git_state, hash_fingerprints, hash_weights
from fastrl_cli.reporting.metrics import PHASES
from fastrl_cli.reporting.plan import ars_trace, count_questions, make_plan
from fastrl_cli.reporting.report import write_report
from fastrl_cli.reporting.summary import RunResult, summarize, wilson_interval


def step(number: int, n: int, kept: int) -> dict[str, float]:
    return {
        "step": number,
        "optimizer_steps": 2 * number,
        "reward/mean": 0.5,
        "rollouts_per_question": n,
        "rollouts/generated": 16 * n,
        "rollouts/kept": kept,
        "kept_fraction": kept / (16 * n),
        "step_seconds": 9.0,
        "tokens/generated": 100,
        "tokens/forward": 80,
        "tokens/trained": 40,
        "faults/bad_images": number,
        "gap/logprob_abs_max": 1e-6 * number,
        **{f"phase_seconds/{phase}": 1.0 for phase in PHASES},
    }


def evaluation(after: int, accuracy: float) -> dict[str, float]:
    return {"step": after, "eval/accuracy": accuracy, "eval/questions": 1024, "eval_seconds": 3.0}


STEPS = [step(1, 8, 48), step(2, 8, 40), step(3, 6, 32)]
EVALUATIONS = [evaluation(0, 0.4), evaluation(2, 0.5), evaluation(3, 0.6)]


def result_of(steps: list[dict[str, float]], evaluations: list[dict[str, float]]) -> RunResult:
    return summarize(
        run_dir="runs/r",
        report="runs/r/report.md",
        algorithm="grpo",
        engine="transformers",
        pruning="mdap",
        adaptive="ars",
        seed=0,
        outcome="finished",
        steps=steps,
        evaluations=evaluations,
    )


def rendered(result: RunResult) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(result.render())
    return text.getvalue()


def test_a_result_sums_the_lines_of_the_run() -> None:
    document = result_of(STEPS, EVALUATIONS).document()
    assert document["schema_version"] == 1 and document["run_dir"] == "runs/r" and document["algorithm"] == "grpo"
    assert (document["steps"], document["optimizer_steps"]) == (3, 6)
    assert (document["accuracy_before"], document["accuracy_after"]) == (0.4, 0.6)
    assert document["seconds"] == 27 and document["evaluation_seconds"] == 9
    assert document["phase_seconds"] == dict.fromkeys(PHASES, 3.0)
    assert document["tokens"] == {"generated": 300, "forward": 240, "trained": 120}
    assert document["kept_fraction"] == pytest.approx(120 / 352)
    assert document["rollouts_per_question"] == {"first": 8, "last": 6}
    assert document["faults"]["bad_images"] == 6
    json.dumps(document, allow_nan=False)


def test_a_result_without_evaluations_or_steps_says_nothing_it_does_not_know() -> None:
    empty = result_of([], [])
    assert (empty.accuracy_before, empty.accuracy_after, empty.kept_fraction) == (None, None, None)
    assert empty.rollouts_per_question == {"first": None, "last": None}
    assert result_of([], [evaluation(0, 0.4)]).accuracy_after is None
    assert "accuracy" in rendered(empty)


def test_the_closing_table_shows_accuracy_kept_phases_and_report() -> None:
    text = rendered(result_of(STEPS, EVALUATIONS))
    assert "40.0 % [37.0, 43.0]" in text and "60.0 % [57.0, 63.0]" in text
    assert "34.1 %" in text and "8 at first, 6 at last" in text
    assert all(phase in text for phase in PHASES) and "runs/r/report.md" in text


@pytest.mark.parametrize(
    ("fraction", "count", "low", "high"),
    [(0.5, 100, 0.4038, 0.5962), (0.0, 10, 0.0, 0.2775), (1.0, 10, 0.7225, 1.0), (0.3, 0, 0.0, 1.0)],
)
def test_wilsons_interval(fraction: float, count: int, low: float, high: float) -> None:
    assert wilson_interval(fraction, count) == pytest.approx((low, high), abs=1e-4)


def manifest() -> dict[str, object]:
    return build_manifest(
        argv=["fastrl", "train", "--run-dir", "a b"],
        seed=3,
        engine="transformers",
        engine_reason="vLLM is not installed",
        device="cpu",
        torch_threads=1,
        processes=1,
        deterministic=True,
        model="builtin",
        model_hash="abc",
        data={"train": {"questions": 3, "fingerprint": "f"}},
    )


def test_a_manifest_says_what_a_repeat_needs() -> None:
    document = manifest()
    assert document["command"] == "fastrl train --run-dir 'a b'"
    assert document["deterministic"] is True and document["seed"] == 3
    assert {"python", "fastrl", "torch", "transformers"} <= set(document["versions"])  # type: ignore[call-overload]
    machine = document["machine"]
    assert isinstance(machine, dict) and machine["cores"] > 0 and machine["memory_bytes"] > 2**20
    json.dumps(document, allow_nan=False)


def test_git_state_is_that_of_a_checkout_only(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert git_state(package) is None
    git("init")
    assert git_state(package) is None
    git("add", ".")
    git("commit", "-m", "first")
    state = git_state(package)
    assert state is not None and len(state["commit"]) == 40 and state["dirty"] is False
    (package / "__init__.py").write_text("changed = 1\n")
    assert git_state(package) == {"commit": state["commit"], "dirty": True}


def test_hashes_tell_weights_and_questions_apart(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"1")
    before = hash_weights(tmp_path)
    (tmp_path / "notes.txt").write_text("no weights")
    assert hash_weights(tmp_path) == before
    weights.write_bytes(b"2")
    assert hash_weights(tmp_path) != before
    assert hash_fingerprints(["a", "b"]) != hash_fingerprints(["b", "a"])


def test_a_report_holds_the_result_and_the_command(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    many = [step(number, 8 - number // 30, 48) for number in range(1, 101)]
    config = load_config().model_dump(mode="json")
    result = result_of(many, EVALUATIONS)
    write_report(path, result=result, config=config, manifest=manifest(), steps=many, evaluations=EVALUATIONS)
    text = path.read_text()
    assert "| accuracy after | 60.0 % [57.0, 63.0] |" in text and "fastrl train --run-dir 'a b'" in text
    assert "| 1–4 |" in text and "| 97–100 |" in text and text.count("\n| ") < 120
    assert "1.00e-04" in text and "'tau': 0.8" not in text and "tau 0.8" in text
    assert "vLLM is not installed" in text and "| bad images | 5050 |" in text


def test_a_report_of_an_unbegun_run_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    write_report(path, result=result_of([], []), config={}, manifest=manifest(), steps=[], evaluations=[])
    assert "## Result" in path.read_text()


def test_the_plan_of_the_papers_run() -> None:
    config = load_config(
        algorithm="dapo",
        overrides=[
            "builtin.train_size=2101",
            "batch={questions_per_step: 256, rollouts: 8, epochs: 25}",
            "optimizer.updates_per_batch=4",
            "sampling.max_tokens=2048",
        ],
    )
    plan = make_plan(config)
    assert (plan.questions, plan.steps_per_epoch, plan.steps, plan.epochs) == (2101, 8, 200, 25)
    assert (plan.rollouts_per_step, plan.updates_per_step, plan.optimizer_steps) == (2048, 4, 800)
    assert plan.tokens_per_step == 2048 * 2048 * 10 and plan.tokens == 200 * plan.tokens_per_step
    assert "1 + 0.28" in plan.loss and "no KL" in plan.loss and "dynamic sampling" in plan.loss
    json.dumps(plan.document(), allow_nan=False)


def test_a_fixed_mini_batch_gives_the_updates_before_pruning() -> None:
    overrides = ["optimizer.updates_per_batch=null", "optimizer.mini_batch_rollouts=50"]
    assert make_plan(load_config(overrides=overrides)).updates_per_step == 3


def test_ars_is_planned_as_the_closed_loop_goes() -> None:
    """METHOD c.2 item 13: kept 0.38 n on average and n at most, n0 = 8, 200 steps, 25 epochs."""
    trace = ars_trace(load_config(), 200, Fraction(25))
    assert trace is not None
    assert trace[:2] == [(1, 8), (122, 7)] and trace[-1] == (194, 4)
    assert ars_trace(load_config(overrides=["adaptive.type=fixed"]), 200, Fraction(25)) is None


def test_questions_are_counted_without_reading_them(tmp_path: Path) -> None:
    def count(*overrides: str) -> int | None:
        return count_questions(load_config(overrides=overrides))

    (tmp_path / "train.jsonl").write_text('{"question": "a", "answer": "1"}\n\n{"question": "b", "answer": "2"}\n')
    assert count(f"data.path={tmp_path}") == 2
    assert count(f"data.path={tmp_path}/train.jsonl", "data.limit=1") == 1
    assert count("data.path=someone/some-data") is None
    assert count("builtin.train_size=7") == 7
    with pytest.raises(DataError, match="no split 'test'"):
        count(f"data.path={tmp_path}", "data.train_split=test")
    with pytest.raises(DataError, match="no file or folder"):
        count(f"data.path={tmp_path}/none.parquet")
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(DataError, match="no rows"):
        count(f"data.path={tmp_path}")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match="not a parquet file"):
        count(f"data.path={tmp_path}/train.parquet")
