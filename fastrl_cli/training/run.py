"""`fastrl train`: put the parts of a run together, then steps, evaluations and checkpoints until it ends."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import torch

from fastrl_cli.config.export import to_yaml
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.load import QuestionSets, load_questions
from fastrl_cli.data.marks import IMAGE_MARK
from fastrl_cli.errors import UsageError
from fastrl_cli.evaluation.validate import Evaluation, Validator
from fastrl_cli.models.load import model_folder
from fastrl_cli.reporting.manifest import build_manifest, command_line, hash_fingerprints, hash_weights
from fastrl_cli.reporting.metrics_file import MetricsFile, read_metrics
from fastrl_cli.reporting.progress import Reporter
from fastrl_cli.reporting.report import write_report
from fastrl_cli.reporting.summary import RunResult, summarize
from fastrl_cli.training.build import (
    ModelParts,
    load_model_parts,
    make_accelerator,
    make_trainer,
    make_validator,
)
from fastrl_cli.training.checkpoint import (
    Checkpoint,
    newest_whole,
    random_states,
    restore_random_states,
    set_aside_after,
    write_checkpoint,
)
from fastrl_cli.training.collect import check_usable
from fastrl_cli.training.loop import Trainer
from fastrl_cli.training.ranks import gather, total
from fastrl_cli.training.records import remove_after, write_rollouts
from fastrl_cli.training.run_directory import (
    RunDirectory,
    check_new,
    check_resumable,
    check_writable,
    default_run_dir,
)
from fastrl_cli.training.watchdog import Watchdog

if TYPE_CHECKING:
    from accelerate import Accelerator


@dataclass
class Run:
    """The parts of a run, built."""

    config: RunConfig
    directory: RunDirectory
    reporter: Reporter
    accelerator: Accelerator
    questions: QuestionSets
    parts: ModelParts
    trainer: Trainer
    validator: Validator | None
    total_steps: int
    steps: MetricsFile | None = None
    evaluations: MetricsFile | None = None
    lock: TextIO | None = None


def train(config: RunConfig, *, resume: Path | None, reporter: Reporter) -> RunResult:
    """Run the training that `config` says, or go on with the run in `resume`, and return its result."""
    directory, checkpoint = open_directory(config, resume, reporter)
    run = build(config, directory, checkpoint, reporter)
    with closing(run):
        prepare_directory(run, checkpoint, resumed=resume is not None)
        interrupted = train_steps(run)
        return finish(run, interrupted=interrupted)


def open_directory(
    config: RunConfig, resume: Path | None, reporter: Reporter
) -> tuple[RunDirectory, Checkpoint | None]:
    """Check the run directory before anything is loaded. Nothing is written yet."""
    if resume is None:
        path = Path(config.run_dir) if config.run_dir else default_run_dir(config.algorithm.name, datetime.now())
        check_new(path)
        return RunDirectory(path), None
    check_resumable(resume)
    check_writable(resume)
    checkpoint = newest_whole(resume, reporter.warn)
    if checkpoint is None:
        reporter.line(f"{resume} has no checkpoint yet: starting again at step 0")
    else:
        reporter.line(f"going on from {checkpoint.folder}, step {checkpoint.step}")
    return RunDirectory(resume), checkpoint


def build(config: RunConfig, directory: RunDirectory, checkpoint: Checkpoint | None, reporter: Reporter) -> Run:
    """Load data, model and engine, cheapest first, so that a mistake shows early."""
    with reporter.phase("reading the questions"):
        questions = load_questions(config.data, config.builtin, config.seed)
    for line in questions.report:
        reporter.line(line)
    accelerator = make_accelerator(config)
    model_path = config.model.path if checkpoint is None else str(checkpoint.folder)
    parts = load_model_parts(config, model_path, accelerator, reporter)
    trainer, length = make_trainer(config, questions.train, parts, accelerator, reporter)
    trainer.collector.check_questions()
    validator = make_validator(config, questions, parts, trainer.collector.reward, accelerator)
    if validator is not None and (config.eval.at_start or config.eval.at_end or config.eval.every):
        check_usable(validator.samples, parts.processing)
    if checkpoint is not None:
        restore(trainer, checkpoint)
    return Run(config, directory, reporter, accelerator, questions, parts, trainer, validator, length.steps)


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state into a newly built trainer, and its weights into the engine."""
    tensors = checkpoint.tensors()
    trainer.load_state_dict(checkpoint.state)
    trainer.policy.load_state_dict(tensors["policy"])
    restore_random_states(tensors["random"])
    trainer.sync()


def prepare_directory(run: Run, checkpoint: Checkpoint | None, *, resumed: bool) -> None:
    """Create the run directory, or cut the files of a run that goes on back to its checkpoint. Every process learns
    its name."""
    if run.accelerator.is_main_process:
        claim_directory(run, resumed=resumed)
        write_beginning(run, checkpoint, resumed=resumed)
    (path,) = gather([run.directory.path] if run.accelerator.is_main_process else [], run.accelerator)
    run.directory = RunDirectory(path)
    run.reporter.run_dir = path


def claim_directory(run: Run, *, resumed: bool) -> None:
    """Hold the run directory. One that was named by the clock gets a number where the name is taken."""
    named = run.directory.path
    for number in itertools.count(2):
        try:
            run.lock = run.directory.claim(fresh=not resumed)
            return
        except UsageError:
            if resumed or run.config.run_dir is not None:
                raise
            run.directory = RunDirectory(named.with_name(f"{named.name}-{number}"))


def write_beginning(run: Run, checkpoint: Checkpoint | None, *, resumed: bool) -> None:
    """Write what is known before the first step, and cut away what a resumed run makes again."""
    config = run.config.model_copy(update={"run_dir": str(run.directory.path)})
    run.directory.create(to_yaml(config), manifest(run), resumed=resumed)
    run.reporter.line(f"run directory: {run.directory.path}")
    step = checkpoint.step if checkpoint else 0
    resume_at = step if resumed else None
    run.steps = MetricsFile(run.directory.metrics, resume_at=resume_at)
    run.evaluations = MetricsFile(run.directory.evaluations, resume_at=resume_at if checkpoint else None)
    remove_after(run.directory.path, step)
    set_aside_after(run.directory.path, step)


def manifest(run: Run) -> dict[str, Any]:
    """What the run is made of."""
    accelerator, questions = run.accelerator, run.questions
    device = torch.cuda.get_device_name() if accelerator.device.type == "cuda" else accelerator.device.type
    folder = model_folder(run.config.model.path)
    return build_manifest(
        argv=command_line(),
        seed=run.config.seed,
        engine=run.parts.engine.name,
        engine_reason=run.parts.engine_reason,
        device=device,
        torch_threads=torch.get_num_threads(),
        processes=accelerator.num_processes,
        deterministic=run.parts.engine.name in ("transformers", "replay") and accelerator.device.type == "cpu",
        model=run.config.model.path,
        model_hash=hash_weights(folder) if folder else "",
        data=describe(questions),
    )


def describe(questions: QuestionSets) -> dict[str, Any]:
    """Source, size and fingerprint of each split."""
    splits = {"train": questions.train, "validation": questions.validation}
    return {
        name: {
            "source": split[0].source,
            "questions": len(split),
            "fingerprint": hash_fingerprints([sample.fingerprint for sample in split]),
        }
        for name, split in splits.items()
        if split
    }


def train_steps(run: Run) -> bool:
    """Evaluations, steps and checkpoints in their order. Returns True where the user interrupted."""
    config, trainer, reporter = run.config, run.trainer, run.reporter
    if trainer.step_number == 0 and config.eval.at_start:
        show_example(run, evaluate(run))
    elif trainer.step_number > 0 and is_due(config.eval.every, trainer.step_number):
        evaluate(run)  # the run ended between this step's checkpoint and its evaluation
    if trainer.step_number < run.total_steps:
        reporter.begin(run.total_steps, trainer.step_number)
    else:
        reporter.line(f"all {run.total_steps} steps are done; batch.steps=NUMBER sets another last one")
    with interrupt_flag(reporter) as interrupted, watched(run):
        while trainer.step_number < run.total_steps:
            step = trainer.step()
            if run.steps is not None:
                if config.log.rollouts:
                    write_rollouts(run.directory.path, trainer.step_number, step)
                run.steps.append(step.metrics)
            reporter.step(step.metrics)
            trainer.faults.stop_if_diverged()
            # A signal may reach the processes in different steps.
            stopping = total([len(interrupted)], run.accelerator)[0] > 0
            done = trainer.step_number == run.total_steps or stopping
            # A checkpoint of a diverging run would push out a sound one.
            if done or (is_due(config.checkpoint.every, trainer.step_number) and not trainer.faults.is_diverging):
                save(run)
            if stopping:
                return True
            if not done and is_due(config.eval.every, trainer.step_number):
                evaluate(run)
    if config.eval.at_end:
        evaluate(run)
    return False


@contextmanager
def watched(run: Run) -> Iterator[None]:
    """With a watchdog on the phases of the steps."""
    faults = run.config.faults
    watchdog = Watchdog(faults.hang_factor, faults.hang_least_seconds, run.directory.path)
    run.trainer.watchdog = watchdog
    try:
        yield
    finally:
        run.trainer.watchdog = None
        watchdog.close()


def is_due(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0


@contextmanager
def interrupt_flag(reporter: Reporter) -> Iterator[list[int]]:
    """A list that the first SIGINT or SIGTERM fills, so that the step under way ends and is saved. The second ends the
    process at once; the last checkpoint then stands."""
    flag: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if flag:
            raise KeyboardInterrupt
        flag.append(number)
        reporter.line("interrupted: this step ends, then the run is saved; again to stop at once")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def save(run: Run) -> None:
    """Write a checkpoint; the other ranks wait. Raises DivergedError, and writes none, where a weight is not finite."""
    trainer = run.trainer
    trainer.policy.check_finite()
    if run.accelerator.is_main_process:
        tensors = {"policy": trainer.policy.state_dict(), "random": random_states()}
        with run.reporter.phase("writing a checkpoint"):
            write_checkpoint(
                run.directory.path, trainer.policy.save, trainer.state_dict(), tensors, run.config.checkpoint.keep
            )
    run.accelerator.wait_for_everyone()


def evaluate(run: Run) -> Evaluation | None:
    """Accuracy on the validation questions, written down and shown; None where there are none, or where this step was
    evaluated before the run was resumed."""
    is_done = run.evaluations is not None and run.evaluations.last_step == run.trainer.step_number
    if run.validator is None or total([is_done], run.accelerator)[0]:
        return None
    with run.reporter.phase("evaluating"):
        evaluation = run.validator.run(run.parts.engine)
    if evaluation.unusable:
        run.reporter.warn(
            f"{evaluation.unusable} validation questions have a picture or a prompt that cannot be used; "
            "they count as wrong"
        )
    metrics = {"step": float(run.trainer.step_number), **evaluation.metrics}
    if run.evaluations is not None:
        run.evaluations.append(metrics)
    run.reporter.evaluation(metrics)
    return evaluation


def show_example(run: Run, evaluation: Evaluation | None) -> None:
    """One validation problem with the model's answer."""
    if evaluation is None:
        return
    rollout = evaluation.rollouts[0]
    run.reporter.example(
        question=rollout.sample.question.replace(IMAGE_MARK, "[picture]"),
        response=rollout.text,
        gold=rollout.sample.answer,
        correct=bool(rollout.reward and rollout.reward.accuracy),
    )


def finish(run: Run, *, interrupted: bool) -> RunResult:
    """The result from the files of metrics, and the report."""
    directory, config = run.directory, run.config
    run.accelerator.wait_for_everyone()
    steps, evaluations = read_metrics(directory.metrics), read_metrics(directory.evaluations)
    result = summarize(
        run_dir=str(directory.path),
        report=str(directory.report),
        algorithm=config.algorithm.name,
        engine=run.parts.engine.name,
        pruning=config.pruning.type,
        adaptive=config.adaptive.type,
        seed=config.seed,
        outcome="interrupted" if interrupted else "finished",
        steps=steps,
        evaluations=evaluations,
    )
    if run.accelerator.is_main_process:
        write_report(
            directory.report,
            result=result,
            config=config.model_dump(mode="json"),
            manifest=json.loads(directory.manifest.read_text(encoding="utf-8")),
            steps=steps,
            evaluations=evaluations,
        )
    return result


@contextmanager
def closing(run: Run) -> Iterator[None]:
    """Close files and engine whatever happens."""
    try:
        yield
    finally:
        for file in (run.steps, run.evaluations, run.lock):
            if file is not None:
                file.close()
        run.parts.engine.close()
