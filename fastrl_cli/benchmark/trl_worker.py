"""TRL's GRPOTrainer as a contender: the same protocol as `worker`, the same model, questions, rewards, lengths and
optimiser settings. One turn is one batch of rollouts with all of its optimiser steps.

    python -m fastrl_cli.benchmark.trl_worker CONFIG.yaml [--fixed-length]
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from fastrl_cli.benchmark.worker import answer, cpu_seconds, peak_rss_bytes
from fastrl_cli.commands.boundary import reserve_stdout
from fastrl_cli.config.export import read_resolved
from fastrl_cli.config.run import RunConfig
from fastrl_cli.data.load import load_questions
from fastrl_cli.data.marks import IMAGE_MARK
from fastrl_cli.data.sample import Sample
from fastrl_cli.errors import MissingError
from fastrl_cli.models.load import load_policy_model, model_path
from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.rewards import Grader, well_formed
from fastrl_cli.sampling import QuestionStream
from fastrl_cli.training.build import make_accelerator

TURNS = 64
"""Batches that the trainer is told to make, more than any benchmark asks for."""


class Turn:
    """What one turn adds up."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the turn before."""
        self.start = time.perf_counter()
        self.cpu = cpu_seconds()
        self.generate = self.reward = 0.0
        self.generated = self.forward = 0
        self.is_generating = False

    def document(self, optimizer_steps: int, rollouts: int, n: int) -> dict[str, Any]:
        """The turn's line, under the names of `reporting.metrics`."""
        seconds = time.perf_counter() - self.start
        metrics = {
            "step_seconds": seconds,
            "phase_seconds/generate": self.generate,
            "phase_seconds/reward": self.reward,
            "phase_seconds/update": seconds - self.generate - self.reward,
            "tokens/generated": self.generated,
            "tokens/forward": self.forward,
            "tokens/trained": self.generated,
            "rollouts/generated": rollouts,
            "rollouts/kept": rollouts,
            "rollouts_per_question": n,
            "optimizer_steps": optimizer_steps,
        }
        cpu = cpu_seconds() - self.cpu
        return {"metrics": metrics, "cpu_seconds": cpu, "peak_rss_bytes": peak_rss_bytes()}


class Reward:
    """The rewards of `AccuracyFormatReward`, in the shape that TRL calls."""

    __name__ = "accuracy_and_format"

    def __init__(self, config: RunConfig, turn: Turn) -> None:
        self.config = config.reward
        self.grader = Grader(config.reward.workers, config.reward.timeout_seconds)
        self.turn = turn

    def __call__(self, completions: Sequence[Any], gold: Sequence[str], completion_ids: Any, **_: Any) -> list[float]:
        start = time.perf_counter()
        texts = [completion[0]["content"] for completion in completions]
        texts = [text if isinstance(text, str) else text[0]["text"] for text in texts]
        grades = self.grader.grade_many(list(zip(texts, gold, strict=True)), mode="strict")
        self.turn.generated += sum(map(len, completion_ids))
        rewards = [
            float(grade.correct) + self.config.format_weight * well_formed(text)
            for grade, text in zip(grades, texts, strict=True)
        ]
        self.turn.reward += time.perf_counter() - start
        return rewards


def rows(config: RunConfig, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The questions in the order in which this package's trainer draws them."""
    from PIL import Image

    count = config.batch.questions_per_step
    stream = QuestionStream(len(samples), count, seed=config.seed, shuffle=config.data.shuffle)
    drawn = [samples[index] for index, _ in stream.take(count * TURNS)]
    made = []
    for sample in drawn:
        text = f"{sample.question.replace(IMAGE_MARK, '')}\n{config.data.instruction}"
        image = Image.open(io.BytesIO(sample.images[0].data)).convert("RGB")
        made.append({"prompt": [{"role": "user", "content": text}], "image": image, "gold": sample.answer})
    return made


def trainer_arguments(config: RunConfig, folder: str, *, fixed_length: bool) -> Any:
    """TRL's settings for this package's; what TRL does better by default stays."""
    from trl import GRPOConfig

    rollouts = config.batch.questions_per_step * config.batch.rollouts
    updates = config.optimizer.updates_per_batch or 1
    length = config.sampling.max_tokens
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        max_steps=updates * TURNS,
        per_device_train_batch_size=rollouts // updates,
        gradient_accumulation_steps=1,
        steps_per_generation=updates,
        num_generations=config.batch.rollouts,
        max_completion_length=length,
        generation_kwargs={"min_new_tokens": length} if fixed_length else None,
        temperature=config.sampling.temperature,
        beta=config.algorithm.kl.coefficient,
        epsilon=config.algorithm.clip_low,
        epsilon_high=config.algorithm.clip_high,
        learning_rate=config.optimizer.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=config.optimizer.weight_decay,
        max_grad_norm=config.optimizer.max_grad_norm,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        dataloader_num_workers=0,
        seed=config.seed,
    )


def main(arguments: list[str]) -> None:
    """Build TRL's trainer and let it run, halted before each batch until stdin says so."""
    stdout = reserve_stdout()
    config = read_resolved(Path(arguments[0]))
    cure()
    try:
        from trl import GRPOTrainer
    except ImportError as error:
        raise MissingError("the package `trl` is not installed: pip install 'fastrl-cli[peer]'") from error
    from datasets import Dataset
    from transformers import AutoProcessor

    accelerator = make_accelerator(config)
    samples = load_questions(config.data, config.builtin, config.seed).train
    model = load_policy_model(config.model, accelerator.device)
    turn = Turn()
    watch(model, turn)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=Reward(config, turn),
            args=trainer_arguments(config, folder, fixed_length="--fixed-length" in arguments),
            train_dataset=Dataset.from_list(rows(config, samples)),
            processing_class=AutoProcessor.from_pretrained(model_path(config.model.path)),
        )
        trainer.add_callback(turns(config, turn, stdout))
        trainer.train()


def watch(model: Any, turn: Turn) -> None:
    """Count the tokens of the training passes, and the time of generation."""
    generate = model.generate

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        turn.is_generating = True
        try:
            return generate(*arguments, **options)
        finally:
            turn.is_generating = False
            turn.generate += time.perf_counter() - start

    def count(module: Any, arguments: Any, options: dict[str, Any]) -> None:
        if not turn.is_generating:
            turn.forward += options["input_ids"].numel()

    model.generate = timed
    model.register_forward_pre_hook(count, with_kwargs=True)


def turns(config: RunConfig, turn: Turn, stdout: TextIO) -> Any:
    """The callback that waits for the next command before a batch, and answers after its last optimiser step."""
    from transformers import TrainerCallback

    updates = config.optimizer.updates_per_batch or 1
    rollouts = config.batch.questions_per_step * config.batch.rollouts

    class Turns(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            answer(stdout, engine="transformers (TRL)")

        def on_step_begin(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % updates == 0:
                line = sys.stdin.readline()
                if not line:
                    sys.exit(0)
                assert json.loads(line) == "step"
                turn.begin()

        def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % updates == 0:
                answer(stdout, **turn.document(state.global_step, rollouts, config.batch.rollouts))

    return Turns()


if __name__ == "__main__":
    main(sys.argv[1:])
