"""One contender of a benchmark in a process of its own: it takes a step for each line `step` that it reads, and answers
with one line of JSON. So that contenders take turns on one machine, and each has its own memory.

    python -m fastrl_cli.benchmark.worker CONFIG.yaml [--fixed-length]
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any, TextIO

import psutil

from fastrl_cli.commands.boundary import reserve_stdout
from fastrl_cli.config.export import read_resolved
from fastrl_cli.data.load import load_questions
from fastrl_cli.evaluation.validate import Validator
from fastrl_cli.reporting.jsonable import dump_line
from fastrl_cli.reporting.progress import QuietReporter
from fastrl_cli.training.build import load_model_parts, make_accelerator, make_trainer, make_validator
from fastrl_cli.training.loop import Trainer


def cpu_seconds() -> float:
    """Processor time of this process and its children so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def answer(stream: TextIO, **document: Any) -> None:
    """Send one line to the benchmark."""
    stream.write(dump_line(document))
    stream.flush()


def main(arguments: list[str]) -> None:
    """Build the contender, then obey until stdin ends."""
    stdout = reserve_stdout()
    config = read_resolved(Path(arguments[0]))
    reporter = QuietReporter()
    questions = load_questions(config.data, config.builtin, config.seed)
    accelerator = make_accelerator(config)
    parts = load_model_parts(config, config.model.path, accelerator, reporter)
    if "--fixed-length" in arguments:
        parts.processing.stop_tokens = ()
    trainer, _ = make_trainer(config, questions.train, parts, accelerator, reporter)
    validator = make_validator(config, questions, parts, trainer.collector.reward, accelerator)
    answer(stdout, engine=parts.engine.name)
    for line in sys.stdin:
        match json.loads(line):
            case "step":
                answer(stdout, **measured_step(trainer))
            case "evaluate":
                answer(stdout, **accuracy(validator, trainer))
    parts.engine.close()


def measured_step(trainer: Trainer) -> dict[str, Any]:
    """One step's metrics, and what it took of processor and memory."""
    before = cpu_seconds()
    metrics = trainer.step().metrics
    return {"metrics": metrics, "cpu_seconds": cpu_seconds() - before, "peak_rss_bytes": peak_rss_bytes()}


def accuracy(validator: Validator | None, trainer: Trainer) -> dict[str, Any]:
    """Accuracy on the validation questions with its interval; nothing where there are none."""
    if validator is None:
        return {}
    metrics = validator.run(trainer.collector.engine).metrics
    return {name: metrics[f"eval/{name}"] for name in ("accuracy", "accuracy_low", "accuracy_high", "questions")}


if __name__ == "__main__":
    main(sys.argv[1:])
