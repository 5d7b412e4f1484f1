"""`fastrl train`: from options to a configuration, then the plan or the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastrl_cli import __version__
from fastrl_cli.commands.boundary import INTERRUPTED, Outcome, Session
from fastrl_cli.config.load import load_config, load_resumed
from fastrl_cli.config.run import RunConfig
from fastrl_cli.errors import UsageError
from fastrl_cli.reporting.wording import resume_command

Flags = dict[str, tuple[str, object]]


@dataclass(frozen=True)
class TrainOptions:
    """The options of `fastrl train` as they were given. None: not given."""

    overrides: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    preset: str | None = None
    algorithm: str | None = None
    pruning: str | None = None
    adaptive: bool | None = None
    engine: str | None = None
    model: str | None = None
    data: str | None = None
    steps: int | None = None
    seed: int | None = None
    run_dir: Path | None = None
    resume: Path | None = None
    progress: str | None = None
    dry_run: bool = False


def train_command(options: TrainOptions, session: Session) -> Outcome:
    """Validate, then print the plan, or train."""
    warnings: list[str] = []
    config = configuration(options, warnings)
    reporter = session.report(config.log.progress)
    reporter.line(first_line(config))
    for warning in warnings:
        reporter.warn(warning)
    if options.dry_run:
        from fastrl_cli.reporting.plan import make_plan

        return Outcome(make_plan(config))
    from fastrl_cli.training.run import train

    result = train(config, resume=options.resume, reporter=reporter)
    if result.outcome == "interrupted":
        reporter.line(f"saved. To go on: {resume_command(result.run_dir)}")
        return Outcome(result, INTERRUPTED)
    return Outcome(result)


def configuration(options: TrainOptions, warnings: list[str]) -> RunConfig:
    """The configuration that the options ask for; `warnings` is filled. Raises `UsageError`."""
    flags = dict(flags_of(options))
    if options.resume is None:
        return load_config(
            files=options.files,
            overrides=options.overrides,
            preset=options.preset,
            algorithm=options.algorithm,
            flags=flags,
            warn=warnings.append,
        )
    from fastrl_cli.training.run_directory import RunDirectory, check_resumable

    for given, option in ((options.files, "--config"), (options.preset, "--preset"), (options.algorithm, "--algo")):
        if given:
            raise UsageError(f"{option} with --resume: a run that goes on keeps its settings. Leave {option} out.")
    check_resumable(options.resume)
    return load_resumed(RunDirectory(options.resume).config, overrides=options.overrides, flags=flags)


def flags_of(options: TrainOptions) -> Iterator[tuple[str, tuple[str, object]]]:
    """The dotted names that options set, each with the option as it was written."""
    adaptive = {True: "ars", False: "fixed"}
    rows = (
        ("pruning.type", "--pruning", options.pruning),
        ("engine.type", "--engine", options.engine),
        ("model.path", "--model", options.model),
        ("data.path", "--data", options.data),
        ("batch.steps", "--steps", options.steps),
        ("seed", "--seed", options.seed),
        ("run_dir", "--run-dir", None if options.run_dir is None else str(options.run_dir)),
        ("log.progress", "--progress", options.progress),
    )
    yield from ((name, (f"{option} {value}", value)) for name, option, value in rows if value is not None)
    if options.adaptive is not None:
        option = "--adaptive" if options.adaptive else "--no-adaptive"
        yield "adaptive.type", (option, adaptive[options.adaptive])


def first_line(config: RunConfig) -> str:
    """What is about to happen, in one line."""
    demo = "the embedded demonstration, " if (config.model.path, config.data.path) == ("builtin", "builtin") else ""
    return (
        f"fastrl {__version__}: {demo}{config.algorithm.name}, pruning {config.pruning.type}, rollouts "
        f"{config.adaptive.type}, model {config.model.path}, data {config.data.path}, seed {config.seed}"
    )
