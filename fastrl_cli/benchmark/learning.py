"""Does the embedded default learn, and only where it should? Runs `fastrl train` for each algorithm, engine and seed,
and the controls (learning rate 0, rewards permuted), and records the accuracies.

    python -m fastrl_cli.benchmark.learning --output figures
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from fastrl_cli.reporting.report import table

ALGORITHMS = ("grpo", "dapo", "gspo")
ENGINES = ("vllm", "transformers")
SEEDS = (0, 1, 2)
"""The recipe was tuned on other seeds."""
CONTROLS = {"learning rate 0": "optimizer.learning_rate=0", "rewards permuted": "reward.shuffle=true"}
LEAST_GAIN, LARGEST_CHANGE = 0.15, 0.03


@dataclass(frozen=True)
class Setting:
    """One run of the embedded default."""

    algorithm: str
    engine: str
    seed: int
    control: str = ""

    def command(self, run_dir: Path) -> list[str]:
        """What a person would type."""
        options = ["--algo", self.algorithm, "--engine", self.engine, "--seed", str(self.seed), "--json"]
        override = [CONTROLS[self.control]] if self.control else []
        return ["fastrl", "train", *options, "--run-dir", str(run_dir), "--progress", "none", *override]


@dataclass(frozen=True)
class Outcome:
    """What a run gave."""

    setting: Setting
    before: float
    after: float
    training_seconds: float
    kept_fraction: float
    first_n: int
    last_n: int

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def holds(self) -> bool:
        """Whether the bar of its kind is met: a gain of 15 points, or for a control a change of at most 3."""
        return abs(self.gain) <= LARGEST_CHANGE if self.setting.control else self.gain >= LEAST_GAIN


def settings(engines: Sequence[str], seeds: Sequence[int]) -> Iterator[Setting]:
    """All runs: every algorithm on every engine and seed, and both controls with every algorithm on the first seed."""
    for engine in engines:
        for seed in seeds:
            for algorithm in ALGORITHMS:
                yield Setting(algorithm, engine, seed)
    for control in CONTROLS:
        for algorithm in ALGORITHMS:
            yield Setting(algorithm, engines[-1], seeds[0], control)


def run(setting: Setting, threads: int) -> Outcome:
    """Train once, on `threads` threads. Raises CalledProcessError where the command fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fastrl_cli", *setting.command(Path(folder) / "run")[1:]]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout)
    return Outcome(
        setting,
        before=document["accuracy_before"],
        after=document["accuracy_after"],
        training_seconds=document["seconds"],
        kept_fraction=document["kept_fraction"],
        first_n=document["rollouts_per_question"]["first"],
        last_n=document["rollouts_per_question"]["last"],
    )


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The figures as a table."""
    header = ["algorithm", "engine", "seed", "control", "before", "after", "gain", "seconds", "kept", "n", "bar"]
    rows = [
        (
            outcome.setting.algorithm,
            outcome.setting.engine,
            outcome.setting.seed,
            outcome.setting.control or "–",
            f"{100 * outcome.before:.1f} %",
            f"{100 * outcome.after:.1f} %",
            f"{100 * outcome.gain:+.1f}",
            f"{outcome.training_seconds:.0f}",
            f"{100 * outcome.kept_fraction:.0f} %",
            f"{outcome.first_n} to {outcome.last_n}",
            "holds" if outcome.holds else "MISSED",
        )
        for outcome in outcomes
    ]
    return table(header, rows)


def main() -> int:
    """Run everything, writing the figures after each run; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; they share the machine's cores")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    planned = list(settings(options.engines, options.seeds))
    outcomes: list[Outcome] = []
    pool = ThreadPoolExecutor(options.jobs)
    for done in as_completed([pool.submit(run, setting, threads) for setting in planned]):
        outcomes = sorted([*outcomes, done.result()], key=lambda outcome: planned.index(outcome.setting))
        document = [asdict(outcome) | {"gain": outcome.gain, "holds": outcome.holds} for outcome in outcomes]
        (options.output / "learning.json").write_text(json.dumps(document, indent=1))
        (options.output / "learning.md").write_text(markdown(outcomes) + "\n")
        print(markdown([done.result()]).splitlines()[-1], file=sys.stderr, flush=True)
    print(markdown(outcomes))
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
