"""`fastrl train` as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from safetensors.torch import load_file

from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.reporting.metrics import is_reproducible
from fastrl_cli.reporting.metrics_file import read_metrics
from tests.commands.conftest import SMALL, command, environment, fastrl, train
from tests.tiny_models import KINDS, Kind

RESULT_KEYS = {
    "run_dir", "algorithm", "steps", "accuracy_before", "accuracy_after", "seconds", "phase_seconds", "tokens",
    "kept_fraction", "rollouts_per_question",
}  # fmt: skip
PHASES = {"generate", "reward", "advantage", "select", "old", "reference", "update", "sync", "other"}


def write_text_questions(path: Path) -> Path:
    """Questions without pictures, for a model of text."""
    path.mkdir()
    for split in ("train", "validation"):
        lines = [json.dumps({"question": f"{split} {k}+{k}?", "answer": str(2 * k), "level": k}) for k in range(12)]
        (path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return path


def comparable(path: Path) -> list[dict[str, float]]:
    """The metrics that a repeat must give bit for bit."""
    lines = read_metrics(path)
    return [{name: value for name, value in line.items() if is_reproducible(name)} for line in lines]


def newest_weights(run_dir: Path) -> dict[str, bytes]:
    folder = sorted((run_dir / "checkpoints").glob("step_??????"))[-1]
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(folder / "model.safetensors").items()}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Six steps without an interruption."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    return run_dir, train(run_dir, "--steps", "6", "checkpoint.every=3").document


def test_the_document_and_the_run_directory_are_complete(whole_run):
    run_dir, document = whole_run
    assert document.keys() >= RESULT_KEYS
    assert document["phase_seconds"].keys() == PHASES
    assert document["steps"] == 6
    assert sum(document["phase_seconds"].values()) == pytest.approx(document["seconds"], rel=1e-6)
    for name in ("config.resolved.yaml", "manifest.json", "metrics.jsonl", "report.md", "rollouts", "checkpoints"):
        assert (run_dir / name).exists(), name
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert line["phase_seconds"].keys() == PHASES
        assert line["tokens"].keys() >= {"generated", "trained"}
        assert 0 < line["kept_fraction"] <= 1
        assert line["rollouts_per_question"] == 4
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert manifest["deterministic"] is True
    assert manifest["data"]["train"]["questions"] == 12
    assert yaml.safe_load((run_dir / "config.resolved.yaml").read_text())["batch"]["rollouts"] == 4


def test_rollouts_carry_every_column_and_the_source(whole_run):
    run_dir, _ = whole_run
    lines = [json.loads(line) for line in (run_dir / "rollouts" / "step_000001.jsonl").read_text().splitlines()]
    assert len(lines) == 12
    for line in lines:
        assert line["source"] == "builtin/train"
        assert line["columns"]["kind"]
        assert line["policy_version"] == 0
        assert len(line["token_ids"]) == len(line["logprobs"])
        assert line["reward"] == pytest.approx(sum(line["reward_parts"].values()))
    later = json.loads((run_dir / "rollouts" / "step_000004.jsonl").read_text().splitlines()[0])
    assert later["policy_version"] > 0


def test_row_49_the_same_seed_gives_the_same_bits(whole_run, tmp_path: Path):
    run_dir, _ = whole_run
    train(tmp_path / "again", "--steps", "6", "checkpoint.every=3")
    assert comparable(tmp_path / "again" / "metrics.jsonl") == comparable(run_dir / "metrics.jsonl")
    assert newest_weights(tmp_path / "again") == newest_weights(run_dir)


def test_row_42_evaluation_touches_no_training_randomness(whole_run, tmp_path: Path):
    run_dir, _ = whole_run
    train(tmp_path / "run", "--steps", "6", "eval.every=2", "eval.at_start=false", "checkpoint.every=3")
    assert comparable(tmp_path / "run" / "metrics.jsonl") == comparable(run_dir / "metrics.jsonl")
    steps = [line["step"] for line in read_metrics(tmp_path / "run" / "evaluations.jsonl")]
    assert steps == [2, 4, 6]


def test_row_41_three_steps_a_kill_and_three_more_equal_six(whole_run, tmp_path: Path):
    run_dir, _ = whole_run
    other = tmp_path / "run"
    options = ("train", "--engine", "transformers", "--run-dir", other, "--steps", "6", "checkpoint.every=3", *SMALL)
    process = subprocess.Popen(command(*options), env=environment(), stderr=subprocess.PIPE, text=True)
    metrics = other / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= 4):
        assert process.poll() is None and time.monotonic() < deadline, process.stderr
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    resumed = fastrl("train", "--resume", other, "--json")
    assert resumed.code == 0, resumed.stderr
    assert resumed.document["steps"] == 6
    assert comparable(metrics) == comparable(run_dir / "metrics.jsonl")
    assert newest_weights(other) == newest_weights(run_dir)
    evaluations = [line["eval/accuracy"] for line in read_metrics(other / "evaluations.jsonl")]
    assert evaluations == [line["eval/accuracy"] for line in read_metrics(run_dir / "evaluations.jsonl")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_and_prints_how_to_go_on(tmp_path: Path, number: signal.Signals):
    run_dir = tmp_path / "run"
    options = ("train", "--engine", "transformers", "--run-dir", run_dir, "--steps", "500", *SMALL)
    process = subprocess.Popen(command(*options), env=environment(), stderr=subprocess.PIPE, text=True)
    metrics = run_dir / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_bytes()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 130, stderr
    assert f"train --resume {run_dir}" in stderr
    done = len(metrics.read_bytes().splitlines())
    assert (run_dir / "checkpoints" / f"step_{done:06d}").is_dir()


def test_a_run_without_a_checkpoint_starts_again_at_step_0(whole_run, tmp_path: Path):
    run_dir, _ = whole_run
    other = tmp_path / "run"
    train(other, "--steps", "6", "checkpoint.every=3")
    for folder in (other / "checkpoints").iterdir():
        folder.rename(tmp_path / folder.name)
    resumed = fastrl("train", "--resume", other, "--json")
    assert resumed.code == 0, resumed.stderr
    assert "starting again at step 0" in resumed.stderr
    assert comparable(other / "metrics.jsonl") == comparable(run_dir / "metrics.jsonl")


def test_a_run_whose_weights_are_not_finite_ends_with_5_and_saves_none_of_them(tmp_path: Path):
    run_dir = tmp_path / "run"
    options = ("--run-dir", run_dir, "--steps", "1", "optimizer.learning_rate=1e308")
    done = fastrl("train", "--engine", "transformers", *options, *SMALL)
    assert done.code == 5 and "not finite" in done.stderr and done.stdout == ""
    assert not list((run_dir / "checkpoints").glob("*"))


def test_a_resume_makes_up_for_a_missing_evaluation_and_repeats_none(tmp_path: Path):
    run_dir = tmp_path / "run"
    train(run_dir, "--steps", "2", "eval.every=1", "checkpoint.every=1")
    path = run_dir / "evaluations.jsonl"
    whole, metrics = path.read_text(), (run_dir / "metrics.jsonl").read_text()
    shutil.rmtree(run_dir / "checkpoints" / "step_000002")
    for kept in (1, 2, 3):  # killed before the evaluation of step 1, before that of step 2, and not at all
        path.write_text("".join(whole.splitlines(keepends=True)[:kept]))
        assert fastrl("train", "--resume", run_dir, "--json").code == 0
        assert [line["step"] for line in read_metrics(path)] == [0, 1, 2]
    accuracies = [json.loads(line)["eval"]["accuracy"] for line in whole.splitlines()]
    assert [line["eval/accuracy"] for line in read_metrics(path)] == accuracies
    assert len((run_dir / "metrics.jsonl").read_text().splitlines()) == len(metrics.splitlines())
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert "--run-dir" in manifest["command"] and "--resume" not in manifest["command"]
    assert ["--resume" in entry["command"] for entry in manifest["resumed"]] == [True] * 3


def test_columns_that_json_does_not_know_are_recorded(tmp_path: Path):
    other = {"when": datetime(2026, 1, 2), "price": Decimal("1.5"), "raw": b"x"}
    rows = [{"question": f"{k}+{k}?", "answer": str(2 * k), **other} for k in range(6)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    train(tmp_path / "run", "--steps", "1", "--data", tmp_path / "train.parquet")
    line = json.loads((tmp_path / "run" / "rollouts" / "step_000001.jsonl").read_text().splitlines()[0])
    assert line["columns"]["when"].startswith("2026-01-02") and line["columns"]["price"] == "1.5"


def test_a_run_directory_in_use_is_refused(whole_run):
    run_dir, _ = whole_run
    before = sorted(path.name for path in run_dir.rglob("*"))
    refused = fastrl("train", "--run-dir", run_dir)
    assert refused.code == 2
    assert f"--resume {run_dir}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted(path.name for path in run_dir.rglob("*")) == before


def test_checkpoints_load_in_transformers_as_they_are(whole_run):
    cure()
    from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

    run_dir, _ = whole_run
    folder = sorted((run_dir / "checkpoints").glob("step_??????"))[-1]
    processor = AutoProcessor.from_pretrained(folder)
    assert processor.chat_template or processor.tokenizer.chat_template
    assert GenerationConfig.from_pretrained(folder).eos_token_id is not None
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype="float32")
    loaded = {tensor.numpy().tobytes() for tensor in model.state_dict().values()}
    assert loaded == set(newest_weights(run_dir).values())


def test_eval_and_prune_analyze_take_the_run(whole_run):
    run_dir, document = whole_run
    evaluated = fastrl("eval", "--model", run_dir, "--json")
    assert evaluated.code == 0, evaluated.stderr
    assert evaluated.document["accuracy"] == document["accuracy_after"]
    analyzed = fastrl("prune-analyze", run_dir, "--json")
    assert analyzed.code == 0, analyzed.stderr
    total = analyzed.document["total"]
    assert total["generated"] == 6 * 3 * 4
    assert total["kept"] / total["generated"] == pytest.approx(document["kept_fraction"])


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
@pytest.mark.parametrize("kind", KINDS)
def test_random_models_of_every_kind_train_a_step(
    model_folder: Callable[[Kind], Path], tmp_path: Path, kind: Kind, engine: str
):
    if engine == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
    data = write_text_questions(tmp_path / "data") if kind == "llama" else "builtin"
    document = train(
        tmp_path / "run",
        "--model", model_folder(kind), "--data", data, "--steps", "2", "pruning.tau=0",
        "algorithm.kl.coefficient=0.01", "optimizer.learning_rate=0.01",
        engine=engine,
    ).document  # fmt: skip
    assert document["engine"] == engine
    assert document["steps"] == 2
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["gap/logprob_abs_max"] < 1e-4
    assert last["policy_version"] == read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["optimizer_steps"]


def test_groups_that_dynamic_sampling_set_aside_are_recorded(tmp_path: Path):
    train(tmp_path / "run", "--algo", "dapo", "--steps", "2", "algorithm.dynamic_sampling.max_rounds=2")
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sum(line["dynamic/dropped_groups"] for line in lines) > 0
    analysis = fastrl("prune-analyze", tmp_path / "run", "--json").document
    assert analysis["total"]["generated"] == sum(line["rollouts/generated"] for line in lines)
    assert analysis["reasons"]["set_aside"] > 0


def test_two_runs_that_begin_together_get_directories_of_their_own(tmp_path: Path):
    quick = ("--steps", "1", "eval.at_start=false", "eval.at_end=false", *SMALL)
    options = command("train", "--engine", "transformers", *quick)
    runs = [
        subprocess.Popen([*options, f"seed={seed}"], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
        for seed in (1, 2)
    ]
    assert [run.wait(300) for run in runs] == [0, 0]
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/manifest.json")]
    assert sorted(manifest["seed"] for manifest in manifests) == [1, 2]


def test_a_run_goes_on_only_with_the_data_it_began_with(tmp_path: Path):
    path = write_text_questions(tmp_path / "data")
    train(tmp_path / "run", "--steps", "1", "--data", path)
    text = (path / "train.jsonl").read_text()
    (path / "train.jsonl").write_text(text.replace("train 3+3", "train 3 + 3"))
    refused = fastrl("train", "--resume", tmp_path / "run", "batch.steps=2")
    assert refused.code == 4 and "the train questions have changed" in refused.stderr
    (path / "train.jsonl").write_text(text)
    assert fastrl("train", "--resume", tmp_path / "run", "batch.steps=2").code == 0


def test_data_that_the_model_cannot_use_are_refused_before_the_run(
    tmp_path: Path, model_folder: Callable[[Kind], Path]
):
    rows = [{"question": "?", "answer": "1"}] * 8 + [{"question": "?", "answer": "1", "images": ["p.png"]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--data", tmp_path, "--engine", "transformers", "--run-dir", tmp_path / "run", *SMALL)
    refused = fastrl("train", "--model", model_folder("llama"), *options)
    assert refused.code == 4 and "takes text only" in refused.stderr
    (tmp_path / "train.jsonl").write_text(json.dumps(rows[0]) + "\n")
    (tmp_path / "validation.jsonl").write_text(json.dumps(rows[-1]) + "\n")
    refused = fastrl("train", "eval.at_start=false", *options)
    assert refused.code == 4 and "validation" in refused.stderr and "can be used" in refused.stderr
    assert not (tmp_path / "run").exists()
