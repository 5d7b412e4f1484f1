"""`report.md`: a run on one page, and the command that repeats it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastrl_cli.reporting.metrics import Metrics
from fastrl_cli.reporting.summary import RunResult, total
from fastrl_cli.reporting.wording import clock, percent, percent_with_interval

SHOWN_STEPS = 25


def write_report(
    path: Path,
    *,
    result: RunResult,
    config: Mapping[str, Any],
    manifest: Mapping[str, Any],
    steps: Sequence[Metrics],
    evaluations: Sequence[Metrics],
) -> None:
    """Write the report. `config` is the resolved configuration as plain values, `manifest` the document of
    `manifest.json`, `steps` and `evaluations` the lines of the two files of metrics."""
    sections = (
        f"# {result.algorithm.upper()} run `{result.run_dir}`",
        _result_section(result),
        _time_section(result),
        _evaluation_section(evaluations),
        _steps_section(steps),
        _faults_section(result, steps),
        _config_section(config),
        _machine_section(manifest),
        f"## To repeat it\n\n```\n{manifest['command']}\n```\n\nThe whole configuration is in `config.resolved.yaml`.",
    )
    path.write_text("\n\n".join(section for section in sections if section) + "\n", encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _result_section(result: RunResult) -> str:
    rows = [
        ("accuracy before", percent_with_interval(result.accuracy_before, result.accuracy_before_interval)),
        ("accuracy after", percent_with_interval(result.accuracy_after, result.accuracy_after_interval)),
        ("validation problems", f"{result.validation_questions:,}"),
        ("outcome", result.outcome),
        ("steps", f"{result.steps:,}"),
        ("optimiser steps", f"{result.optimizer_steps:,}"),
        ("rollouts kept", percent(result.kept_fraction)),
        ("rollouts a question, first and last step", " and ".join(map(str, result.rollouts_per_question.values()))),
        *((f"tokens {kind}", f"{count:,}") for kind, count in result.tokens.items()),
        ("engine", result.engine),
        ("pruning", result.pruning),
        ("rollout count", result.adaptive),
        ("seed", result.seed),
    ]
    return "## Result\n\nIntervals are 95 % Wilson intervals over the validation problems.\n\n" + table(["", ""], rows)


def _time_section(result: RunResult) -> str:
    seconds = result.seconds or 1.0
    rows = [(name, f"{spent:.2f}", percent(spent / seconds)) for name, spent in result.phase_seconds.items()]
    rows.append(("all steps", f"{result.seconds:.2f}", ""))
    rows.append(("evaluation", f"{result.evaluation_seconds:.2f}", ""))
    return "## Time\n\n" + table(["phase", "seconds", "share"], rows)


def _evaluation_section(evaluations: Sequence[Metrics]) -> str:
    if not evaluations:
        return ""
    rows = [
        (
            f"{line['step']:.0f}",
            percent(line.get("eval/accuracy")),
            percent(line.get("eval/format")),
            f"{line['eval/length_mean']:.1f}" if "eval/length_mean" in line else "–",
            clock(line["eval_seconds"]) if "eval_seconds" in line else "–",
        )
        for line in evaluations
    ]
    return "## Evaluations\n\n" + table(["step", "accuracy", "well-formed", "tokens", "time"], rows)


def _steps_section(steps: Sequence[Metrics]) -> str:
    if not steps:
        return ""
    stride = -(-len(steps) // SHOWN_STEPS)
    windows = [steps[start : start + stride] for start in range(0, len(steps), stride)]
    columns = {
        "reward/mean": ".3f", "reward/accuracy": ".3f", "rollouts_per_question": ".3g", "kept_fraction": ".3f",
        "groups/zero_std_fraction": ".3f",
    }  # fmt: skip
    rows = [(_span(window), *(_mean(window, name, form) for name, form in columns.items())) for window in windows]
    header = ["steps", "reward", "accuracy", "n", "kept share", "groups without spread"]
    return "## Steps\n\nMeans over the steps of each row.\n\n" + table(header, rows)


def _span(window: Sequence[Metrics]) -> str:
    first, last = window[0]["step"], window[-1]["step"]
    return f"{first:.0f}" if first == last else f"{first:.0f}–{last:.0f}"


def _mean(window: Sequence[Metrics], name: str, form: str) -> str:
    count = sum(name in line for line in window)
    return f"{total(window, name) / count:{form}}" if count else "–"


def _faults_section(result: RunResult, steps: Sequence[Metrics]) -> str:
    rows = [(name.replace("_", " "), count) for name, count in result.faults.items()]
    gap = max((line["gap/logprob_abs_max"] for line in steps if "gap/logprob_abs_max" in line), default=None)
    text = "## Faults\n\n" + table(["what was set aside", "count"], rows)
    if gap is None:
        return text
    return f"{text}\n\nLargest gap between the engine's and the trainer's log-probabilities: {gap:.2e}."


def _config_section(config: Mapping[str, Any]) -> str:
    rows = [(f"`{section}`", _plain(value)) for section, value in config.items()]
    return "## Configuration\n\n" + table(["section", "values"], rows)


def _plain(value: Any) -> str:
    """A value of JSON as a person writes it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _machine_section(manifest: Mapping[str, Any]) -> str:
    machine = dict(manifest["machine"])
    memory, load = machine.pop("memory_bytes"), machine.pop("load_1_minute")
    rows = [
        *((name, text) for name, text in manifest["versions"].items()),
        *((name.replace("_", " "), value) for name, value in machine.items()),
        ("memory", f"{memory / 2**30:.1f} GiB"),
        ("load at the start, mean of a minute", f"{load:.2f}"),
        ("engine", f"{manifest['engine']['name']}: {manifest['engine']['reason']}"),
        ("model SHA-256", manifest["model"]["sha256"]),
        *((f"data {name}", _plain(value)) for name, value in manifest["data"].items()),
        ("bit for bit repeatable here", "yes" if manifest["deterministic"] else "no"),
        ("git", _plain(manifest["git"] or "not a checkout")),
    ]
    return "## Versions and machine\n\n" + table(["", ""], rows)
