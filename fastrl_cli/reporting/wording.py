"""The lines a person reads."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from fastrl_cli.reporting.metrics import PHASES, Metrics


def program() -> str:
    """How this program was called, so that a command which it prints can be pasted as it stands."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m fastrl_cli"
    if called.name != "fastrl" or not called.is_file():
        return "fastrl"
    on_path = shutil.which("fastrl")
    return "fastrl" if on_path is not None and called.samefile(on_path) else str(called)


def resume_command(run_dir: Path | str) -> str:
    """The command that goes on with a run."""
    return f"{program()} train --resume {shlex.quote(str(run_dir))}"


def clock(seconds: float) -> str:
    """`8 s`, `3:05`, `2:03:05`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.1f} %"


def percent_with_interval(fraction: float | None, interval: tuple[float, float] | None) -> str:
    """`41.2 % [38.2, 44.3]`"""
    if interval is None:
        return percent(fraction)
    low, high = interval
    return f"{percent(fraction)} [{100 * low:.1f}, {100 * high:.1f}]"


def numbers_text(metrics: Metrics) -> str:
    """The numbers of a step that a person follows; those that were not measured are left out."""
    shown = (
        ("reward", "reward/mean", ".3f"),
        ("accuracy", "reward/accuracy", ".3f"),
        ("kept", "kept_fraction", ".1%"),
        ("n", "rollouts_per_question", ".0f"),
        ("tokens/s", "tokens_per_second", ",.0f"),
        ("seconds", "step_seconds", ".2f"),
    )
    return "  ".join(f"{label} {metrics[name]:{form}}" for label, name, form in shown if name in metrics)


def phases_text(metrics: Metrics) -> str:
    """Seconds of the phases that took any: `generate 0.61 s, update 0.48 s`."""
    seconds = ((phase, metrics.get(f"phase_seconds/{phase}", 0.0)) for phase in PHASES)
    return ", ".join(f"{phase} {spent:.2f} s" for phase, spent in seconds if spent >= 0.005)


def step_text(metrics: Metrics, total_steps: int, seconds_left: float | None) -> str:
    """A step in one line."""
    phases = phases_text(metrics)
    parts = [f"step {metrics['step']:.0f}/{total_steps}", numbers_text(metrics), f"({phases})" if phases else ""]
    if seconds_left is not None:
        parts.append(f"ETA {clock(seconds_left)}")
    return "  ".join(part for part in parts if part)


def evaluation_text(metrics: Metrics) -> str:
    """An evaluation in one line."""
    interval = None
    if "eval/accuracy_low" in metrics and "eval/accuracy_high" in metrics:
        interval = metrics["eval/accuracy_low"], metrics["eval/accuracy_high"]
    parts = [f"accuracy {percent_with_interval(metrics.get('eval/accuracy'), interval)}"]
    if "eval/format" in metrics:
        parts.append(f"well-formed {percent(metrics['eval/format'])}")
    if "eval/length_mean" in metrics:
        parts.append(f"{metrics['eval/length_mean']:.1f} tokens")
    if "eval/questions" in metrics:
        parts.append(f"{metrics['eval/questions']:,.0f} problems")
    if "eval_seconds" in metrics:
        parts.append(clock(metrics["eval_seconds"]))
    return f"evaluation after step {metrics['step']:.0f}: " + ", ".join(parts)


def example_text(*, question: str, response: str, gold: str, correct: bool) -> str:
    """A problem and the model's answer, a labelled line each."""
    rows = [("problem", question), ("model", response), ("gold", gold)]
    rows.append(("verdict", "right" if correct else "wrong"))
    return "\n".join(f"  {label:<8} {text.strip()}" for label, text in rows if text.strip())
