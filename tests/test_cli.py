"""The command line as a person meets it: streams, exit codes, messages."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastrl_cli.commands.boundary import as_known
from fastrl_cli.commands.train import TrainOptions, configuration
from fastrl_cli.errors import DataError, DivergedError, FastRLError, MissingError, UsageError

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "vllm", "datasets", "PIL", "sympy", "math_verify", "numpy", "rich", "yaml"}
QUIETLY = "from fastrl_cli.cli import main\ntry: main()\nexcept SystemExit: pass"


def python(code: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def fastrl(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.argv = ['fastrl', *{list(arguments)!r}]\nfrom fastrl_cli.cli import main; main()"
    return python(code, cwd, **environment)


def modules_after(code: str, cwd: Path = ROOT) -> set[str]:
    """The packages that are loaded after some code."""
    done = python(f"import sys\n{code}\nprint(*sys.modules, sep='\\n', file=sys.stderr)", cwd)
    assert done.returncode == 0, done.stderr
    return {line.partition(".")[0] for line in done.stderr.splitlines()}


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["prune-analyze"], ["bench"]], ids=str)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    loaded = modules_after(f"sys.argv = ['fastrl', *{command!r}, '--help']\n{QUIETLY}")
    assert "typer" in loaded and not loaded & HEAVY


def test_the_version_and_the_module_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastrl_cli", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("fastrl 0.") and done.stderr == ""


def test_a_dry_run_touches_no_model_and_writes_nothing(tmp_path: Path) -> None:
    loaded = modules_after(f"sys.argv = ['fastrl', 'train', '--dry-run', '--run-dir', 'r']\n{QUIETLY}", tmp_path)
    assert "pydantic" in loaded and not loaded & {"torch", "transformers", "vllm", "datasets"}
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_plan() -> None:
    done = fastrl("train", "--dry-run")
    assert done.returncode == 0
    for part in ("16 questions × 8 = 128 rollouts", "optimiser steps", "dead groups", "grpo", "mdap"):
        assert part in done.stdout


def test_a_dry_run_prints_one_json_document_alone() -> None:
    done = fastrl("train", "--dry-run", "--json", "--algo", "gspo", "--steps", "7", "batch.rollouts=4")
    plan = json.loads(done.stdout)
    assert (plan["algorithm"], plan["steps"], plan["rollouts"], plan["dry_run"]) == ("gspo", 7, 4, True)
    assert done.returncode == 0 and done.stderr.startswith("fastrl ")


def test_options_reach_the_configuration() -> None:
    options = ["--pruning", "none", "--no-adaptive", "--engine", "transformers", "--model", "m", "--seed", "5"]
    done = fastrl("train", "--dry-run", "--json", *options, "--preset", "release", "--progress", "plain")
    plan = json.loads(done.stdout)
    assert (plan["pruning"], plan["adaptive"], plan["engine"], plan["model"]) == (
        "none", "fixed at 8", "transformers", "m",
    )  # fmt: skip
    assert "seed 5" in done.stderr


def test_several_configs_are_merged_left_to_right(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("batch: {steps: 3, rollouts: 4}\n")
    (tmp_path / "b.yaml").write_text("batch: {steps: 5}\n")
    done = fastrl("train", "--dry-run", "--json", "-c", "a.yaml", "--config", "b.yaml", cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert (plan["steps"], plan["rollouts"]) == (5, 4)


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["train", "--dry-run", "prune.rato=0.5"], 2, "unknown `prune.rato`; did you mean `pruning.tau`?"),
        (["train", "batch.rollouts=1"], 2, "an advantage compares rollouts of one question"),
        (["train", "--config", "none.yaml"], 2, "none.yaml does not exist"),
        (["train", "--unknown"], 2, "--unknown"),
        (["train", "--resume", "none"], 2, "no such directory"),
        (["train", "--dry-run", "--data", "./none.parquet"], 4, "no file or folder './none.parquet'"),
        (["train", "--dry-run", "--model", "./none"], 4, "model ./none: no such folder"),
        (["train", "--dry-run", "--data", str(ROOT / "configs")], 4, "has no data file"),
        (["bench", "--progress", "loud"], 2, "must be one of auto, rich, plain, none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_ends_with_one_message_and_nothing_written(
    tmp_path: Path, arguments: list[str], code: int, part: str
) -> None:
    done = fastrl(*arguments, cwd=tmp_path)
    assert done.returncode == code and part in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_checks_the_columns(tmp_path: Path) -> None:
    rows = {
        "t.jsonl": '{"prompt": "1+1?"}\n{"prompt": "2+2?", "gold": "4"}\n',
        "t.csv": "prompt,gold\n1+1?,2\n",
    }
    for name, text in rows.items():
        (tmp_path / name).write_text(text)
        refused = fastrl("train", "--dry-run", "--data", name, cwd=tmp_path)
        assert refused.returncode == 4 and "data.columns.question=NAME" in refused.stderr
        columns = ("data.columns.question=prompt", "data.columns.answer=gold")
        assert fastrl("train", "--dry-run", "--data", name, *columns, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (TrainOptions(steps=0), "batch.steps is 0 (from `--steps 0`)"),
        (TrainOptions(algorithm="ppo"), "--algo is ppo: must be one of grpo, dapo, gspo"),
        (TrainOptions(preset="mine"), "--preset is mine: must be one of paper, release"),
        (TrainOptions(pruning="all"), "pruning.type is all (from `--pruning all`)"),
        (TrainOptions(engine="sglang"), "'auto', 'transformers', 'vllm', 'replay'"),
        (TrainOptions(progress="loud"), "log.progress is loud (from `--progress loud`)"),
        (TrainOptions(resume=Path("r"), algorithm="dapo"), "Leave --algo out"),
        (TrainOptions(resume=Path("r"), files=(Path("c.yaml"),)), "Leave --config out"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_named(options: TrainOptions, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        configuration(options, [])
    assert part in str(caught.value)


def test_debug_shows_the_traceback() -> None:
    done = fastrl("train", "batch.rollouts=1", "--debug")
    assert done.returncode == 2 and "Traceback" in done.stderr and "error: batch.rollouts is 1" in done.stderr


COMMAND = """
import os, subprocess, sys
from pathlib import Path
from fastrl_cli.commands.boundary import Outcome, execute
from fastrl_cli.errors import *

class Found:
    def document(self):
        return {"loss": float("nan"), "path": "é"}
    def render(self):
        return "[a table]"

def work(session):
    reporter = session.report("plain")
    reporter.run_dir = Path("run")
    Path("run").mkdir()
"""


def execute(
    body: str, tmp_path: Path, *, as_json: bool = True, debug: bool = False, **environment: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process that runs `body` as a command."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    done = python(
        f"{COMMAND}{lines}\nsys.exit(execute(work, as_json={as_json}, debug={debug}))", tmp_path, **environment
    )
    return done.returncode, done.stdout, done.stderr


NOISE = """
import atexit
atexit.register(lambda: os.write(1, b"from the very end\\n"))
print("from Python")
os.write(1, b"from C\\n")
subprocess.run(["echo", "from a child"])
return Outcome(Found(), 0)
"""


def test_stdout_is_the_result_alone(tmp_path: Path) -> None:
    code, out, err = execute(NOISE, tmp_path)
    assert code == 0 and json.loads(out) == {"loss": None, "path": "é"}
    for source in ("from Python", "from C", "from a child", "from the very end"):
        assert source in err


def test_a_person_gets_the_table(tmp_path: Path) -> None:
    assert execute("return Outcome(Found(), 0)", tmp_path, as_json=False)[:2] == (0, "[a table]\n")


def test_only_the_first_process_prints(tmp_path: Path) -> None:
    assert execute("return Outcome(Found(), 0)", tmp_path, RANK="1")[:2] == (0, "")


def test_an_outcome_has_its_exit_code(tmp_path: Path) -> None:
    assert execute("return Outcome(Found(), 130)", tmp_path)[0] == 130


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    code, out, err = execute("raise KeyboardInterrupt", tmp_path)
    assert (code, out) == (130, "") and "fastrl train --resume run" in err


def test_a_failure_leaves_its_traceback_in_the_run_directory(tmp_path: Path) -> None:
    code, out, err = execute("raise DivergedError('three steps in a row')", tmp_path)
    assert (code, out) == (5, "") and "error: three steps in a row" in err and "Traceback" not in err
    assert "DivergedError: three steps in a row" in (tmp_path / "run" / "error.txt").read_text()


def test_what_nobody_foresaw_is_one_message_too(tmp_path: Path) -> None:
    code, _, err = execute("raise ZeroDivisionError('by zero')", tmp_path)
    assert code == 1 and "error: ZeroDivisionError: by zero" in err and "--debug" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "kind", "part"),
    [
        (UsageError("u"), UsageError, "u"),
        (DataError("d"), DataError, "d"),
        (DivergedError("v"), DivergedError, "v"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/runs/x"),
            MissingError,
            "no space left on the disk: /runs/x",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/runs/x"), MissingError, "no permission: /runs/x"),
        (OSError(errno.EROFS, "Read-only file system", "/runs/x"), MissingError, "--run-dir"),
        (MemoryError(), MissingError, "out of memory"),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), MissingError, "tokens_per_micro_batch"),
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), MissingError, "`vllm` is not installed"),
        (ModuleNotFoundError("No module", name="fastrl_cli.x"), FastRLError, "not foreseen"),
        (OSError(errno.EIO, "Input/output error"), FastRLError, "Input/output error"),
        (ValueError("first\nsecond"), FastRLError, "ValueError: first\n"),
    ],
    ids=repr,
)
def test_an_error_becomes_one_that_says_what_to_do(error: Exception, kind: type[FastRLError], part: str) -> None:
    known = as_known(error)
    assert type(known) is kind and part in str(known)


def test_exit_codes_differ() -> None:
    codes = [kind.exit_code for kind in (FastRLError, UsageError, MissingError, DataError, DivergedError)]
    assert codes == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("arguments", [["train"], ["eval"], ["bench", "--suite", "none"]], ids=str)
def test_row_44_the_first_line_comes_before_anything_heavy(arguments: list[str], tmp_path: Path) -> None:
    blocked = "import sys\nfor name in ('torch', 'transformers', 'vllm'): sys.modules[name] = None\n"
    code = f"{blocked}sys.argv = ['fastrl', *{arguments!r}]\nfrom fastrl_cli.cli import main; main()"
    done = python(code, tmp_path)
    assert done.returncode != 0
    assert done.stderr.splitlines()[0].startswith(("fastrl 0.", "evaluating", "measuring"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_streams_that_are_closed_from_the_start_are_no_failure(tmp_path: Path, closed: tuple[int, ...]) -> None:
    streams = {number: tmp_path / f"{number}" for number in (1, 2)}
    redirections = " ".join(f"{number}>{path}" for number, path in streams.items())
    shut = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    command = f"{sys.executable} -m fastrl_cli train --dry-run --json {redirections} {shut}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, timeout=120)
    assert done.returncode == 0
    written = streams[1].read_text()
    if 1 in closed:
        assert written == ""
    else:
        assert json.loads(written)["dry_run"] is True


@pytest.mark.parametrize("option", [[], ["--json"]], ids=str)
def test_a_reader_that_goes_away_is_no_failure(option: list[str]) -> None:
    command = [sys.executable, "-m", "fastrl_cli", "train", "--dry-run", *option]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert done.returncode == 0 and "Error" not in done.stderr
