"""Two CPU processes against one: the same rollouts must give the same advantages, selection and weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from fastrl_cli.reporting.metrics_file import read_metrics
from tests.commands.conftest import SMALL, Done, environment, train
from tests.tiny_models import Kind

# accelerate starts several processes under its option for GPUs alone; the program then finds none and takes the CPU.
LAUNCHER = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
]  # fmt: skip


def launch(run_dir: Path, *arguments: str | Path, engine: str = "transformers") -> Done:
    """`accelerate launch` with CPU processes."""
    options = ["train", "--engine", engine, "--run-dir", run_dir, "--json", "--debug", *arguments, *SMALL]
    done = subprocess.run(
        [sys.executable, *LAUNCHER, "-m", "fastrl_cli", *map(str, options)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=500,
    )
    if done.returncode == 0:
        assert json.loads((run_dir / "manifest.json").read_text())["machine"]["processes"] == 2
    return Done(done.returncode, done.stdout, done.stderr)


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(sorted((run_dir / "checkpoints").glob("step_??????"))[-1] / "model.safetensors")


def decisions(run_dir: Path) -> list[tuple]:
    """Advantage and selection of every rollout."""
    lines = [
        json.loads(line)
        for file in sorted((run_dir / "rollouts").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return [(r["step"], r["question_id"], r["draw"], r["index"], r["advantage"], r["kept"], r["reason"]) for r in lines]


def mixed_questions(folder: Path) -> Path:
    """Questions of which only every other one has a picture."""
    from tests.training.conftest import picture

    folder.mkdir()
    lines = []
    for row in range(12):
        images = []
        if row % 2:
            (folder / f"{row}.png").write_bytes(picture(84, 84, row).data)
            images = [f"{row}.png"]
        lines.append(json.dumps({"question": f"question {row}", "answer": str(row), "images": images}))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the built-in model whose rollouts are replayed below, edited so that rewards differ."""
    run_dir = tmp_path_factory.mktemp("recorded") / "run"
    train(run_dir, "--steps", "3", "optimizer.learning_rate=1e-3")
    return run_dir


@pytest.mark.parametrize("algorithm", ["grpo", "gspo"])
def test_two_processes_equal_one_on_recorded_rollouts(recorded: Path, tmp_path: Path, algorithm: str):
    options = (
        "--algo", algorithm, "--steps", "3", f"engine.run={recorded}", "optimizer.learning_rate=1e-3",
        "model.tokens_per_micro_batch=256", "eval.at_start=false", "eval.at_end=false",
        # A key's bias has no gradient but rounding, which a smaller eps would blow up to a whole step.
        "optimizer.eps=1e-5",
    )  # fmt: skip
    one = train(tmp_path / "one", *options, engine="replay").document
    done = launch(tmp_path / "two", *options, engine="replay")
    assert done.code == 0, done.stderr
    assert done.document["optimizer_steps"] == one["optimizer_steps"] > 0
    assert decisions(tmp_path / "one") == decisions(tmp_path / "two")
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-5, rtol=0)
    for a, b in zip(
        read_metrics(tmp_path / "one" / "metrics.jsonl"), read_metrics(tmp_path / "two" / "metrics.jsonl"), strict=True
    ):
        for name in ("loss/total", "grad_norm", "kept_fraction", "tokens/trained", "entropy", "gap/logprob_abs_mean"):
            assert b[name] == pytest.approx(a[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow])])
def test_two_processes_train_with_an_engine_each(model_folder: Callable[[Kind], Path], tmp_path: Path, engine: str):
    if engine == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
    data = mixed_questions(tmp_path / "data")
    done = launch(
        tmp_path / "run", "--steps", "2", "--data", data, "--model", model_folder("qwen2_5_vl"),
        "algorithm.kl.coefficient=0.01", "batch.questions_per_step=3", engine=engine,
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert done.document["steps"] == 2
    generated = {line[1:4] for line in decisions(tmp_path / "run") if line[0] == 1}
    assert len(generated) == 12


def test_an_interrupt_that_reaches_one_process_alone_stops_and_saves_both(tmp_path: Path):
    run_dir = tmp_path / "run"
    options = ["train", "--engine", "transformers", "--run-dir", str(run_dir), "--steps", "500", *SMALL]
    launcher = subprocess.Popen(
        [sys.executable, *LAUNCHER, "-m", "fastrl_cli", *options], env=environment(), stderr=subprocess.PIPE, text=True
    )
    metrics = run_dir / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_bytes()):
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    second = next(p for p in psutil.Process(launcher.pid).children(recursive=True) if p.environ().get("RANK") == "1")
    second.send_signal(signal.SIGINT)
    _, stderr = launcher.communicate(timeout=200)
    done = len(metrics.read_bytes().splitlines())
    assert (run_dir / "checkpoints" / f"step_{done:06d}").is_dir(), stderr


def test_a_checkpoint_of_two_processes_goes_on_in_two(recorded: Path, tmp_path: Path):
    options = ("--steps", "2", f"engine.run={recorded}", "eval.at_start=false", "eval.at_end=false")
    assert launch(tmp_path / "run", *options, "checkpoint.every=1", engine="replay").code == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_000002")
    command = [sys.executable, *LAUNCHER, "-m", "fastrl_cli", "train", "--resume", str(tmp_path / "run"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
