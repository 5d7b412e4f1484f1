"""The command line. It reads options and hands them on: everything heavier is imported once a command is at work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fastrl_cli import __version__

app = typer.Typer(
    name="fastrl",
    help="Reinforcement learning of vision-language models with GRPO, DAPO and GSPO, pruned and sampled by FastRL.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Settings by their dotted name: optimizer.learning_rate=1e-5"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
Progress = Annotated[str, typer.Option(metavar="auto|rich|plain|none", help="How to show it.")]


@app.callback(invoke_without_command=True)
def fastrl(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"fastrl {__version__}")
        raise typer.Exit


@app.command()
def train(
    overrides: Overrides = None,
    algo: Annotated[
        str | None, typer.Option(metavar="grpo|dapo|gspo", help="Algorithm, with the paper's settings.")
    ] = None,
    pruning: Annotated[
        str | None, typer.Option(metavar="none|mdap|advantage_only", help="Which rollouts to keep.")
    ] = None,
    adaptive: Annotated[
        bool | None, typer.Option("--adaptive/--no-adaptive", help="Adapt the number of rollouts (ARS), or fix it.")
    ] = None,
    engine: Annotated[str | None, typer.Option(metavar="auto|vllm|transformers", help="What generates.")] = None,
    model: Annotated[str | None, typer.Option(help="`builtin`, a folder or a hub id.")] = None,
    data: Annotated[str | None, typer.Option(help="`builtin`, a folder, a file or a hub id.")] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="paper|release", help="FastRL as in the paper, or its authors' code.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="New or empty directory for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    config: Annotated[
        list[Path] | None, typer.Option("--config", "-c", help="YAML file; repeat it to merge several, left to right.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the plan, write nothing.")
    ] = False,
    progress: Annotated[str | None, typer.Option(metavar="auto|rich|plain|none", help="How to show it.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model. Without options: the tiny built-in model on drawn geometry problems."""
    from fastrl_cli.commands.boundary import execute
    from fastrl_cli.commands.train import TrainOptions, train_command

    options = TrainOptions(
        overrides=tuple(overrides or ()),
        files=tuple(config or ()),
        preset=preset,
        algorithm=algo,
        pruning=pruning,
        adaptive=adaptive,
        engine=engine,
        model=model,
        data=data,
        steps=steps,
        seed=seed,
        run_dir=run_dir,
        resume=resume,
        progress=progress,
        dry_run=dry_run,
    )
    raise typer.Exit(execute(lambda session: train_command(options, session), as_json=json, debug=debug))


@app.command(name="eval")
def evaluate(
    model: Annotated[str, typer.Option(help="A run directory, `builtin`, a model folder or a hub id.")] = "builtin",
    benchmark: Annotated[str, typer.Option(help="What to evaluate on.")] = "validation",
    progress: Progress = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Accuracy of a model, or of the newest checkpoint of a run."""
    from fastrl_cli.commands.boundary import execute
    from fastrl_cli.commands.others import eval_command

    work = execute(lambda session: eval_command(model, benchmark, progress, session), as_json=json, debug=debug)
    raise typer.Exit(work)


@app.command()
def prune_analyze(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_FILE", help="A run directory or one of its rollouts files.")
    ],
    progress: Progress = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """What pruning kept of recorded rollouts, and why."""
    from fastrl_cli.commands.boundary import execute
    from fastrl_cli.commands.others import analyze_command

    work = execute(lambda session: analyze_command(source, progress, session), as_json=json, debug=debug)
    raise typer.Exit(work)


@app.command()
def bench(
    suite: Annotated[str, typer.Option(metavar="quick|factors|paper", help="What is compared with what.")] = "quick",
    peer: Annotated[
        str | None, typer.Option(metavar="trl", help="Compare with another trainer, which must be installed.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of each contender, at most.")] = 12,
    seconds: Annotated[float | None, typer.Option(min=1, help="Begin no more steps after this long.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each contender; as many as there are cores.")
    ] = None,
    min_speedup: Annotated[
        float | None, typer.Option(min=0, help="Exit with 1 where the first speed-up's interval reaches below.")
    ] = None,
    progress: Progress = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Speed: contenders take turns on the same questions, weights and seeds."""
    from fastrl_cli.commands.boundary import execute
    from fastrl_cli.commands.others import BenchOptions, bench_command

    options = BenchOptions(suite, peer, steps, seconds, threads, min_speedup, progress)
    work = execute(lambda session: bench_command(options, session), as_json=json, debug=debug)
    raise typer.Exit(work)


def main() -> None:
    """The entry point of the command `fastrl`."""
    # vLLM's kernels warn of NUMA nodes on every start. torch reads this once, when it is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    app()


if __name__ == "__main__":
    main()
