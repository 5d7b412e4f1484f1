"""Trains the built-in model from scratch: `python -m fastrl_cli.models.builtin.pretrain --output DIR --seed 0`.

Supervised on demonstrations (`demonstrations.py`: some of them careless on purpose) of problems that are drawn as they
are needed, from the split `pretrain` alone. One seed gives the same bits on the same machine. `training.json` beside
the weights records how they came about.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from fastrl_cli.config.data import DEFAULT_INSTRUCTION
from fastrl_cli.data.builtin import Problem, draw_problem
from fastrl_cli.models.builtin.demonstrations import CARELESS_SHARE, MALFORMED_SHARE, demonstration
from fastrl_cli.models.builtin.skeleton import build_model, build_processor, build_tokenizer
from fastrl_cli.models.torchvision_cure import cure

IGNORED = -100


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, but for the code and the machine."""

    seed: int = 0
    steps: int = 2400
    batch: int = 64
    short_prompts: float = 0.75
    """Share of the steps, before the last fifth, whose prompts leave out the instruction, which costs half the time."""
    learning_rate: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    threads: int = 2
    corpus: int = 4096
    """Demonstrations that the tokenizer's merges are learned on."""
    validation: int = 1024


@dataclass(frozen=True)
class Demonstration:
    """A problem with the response to imitate."""

    problem: Problem
    response: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save and measure; progress on stderr."""
    parser = argparse.ArgumentParser(prog="python -m fastrl_cli.models.builtin.pretrain", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the weights, tokenizer and records")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    options = parser.parse_args(arguments)
    pretrain(options.output, Recipe(seed=options.seed, steps=options.steps))


def pretrain(output: Path, recipe: Recipe) -> None:
    """Train by `recipe` and write the model folder with its `training.json`."""
    cure()
    import torch

    with _reproducible(recipe):
        processor = build_processor(build_tokenizer(_corpus(recipe)))
        model = build_model(processor.tokenizer)
        started = time.monotonic()
        losses = _train(model, processor, recipe)
        seconds = time.monotonic() - started
        model.to(torch.bfloat16).save_pretrained(output)
        processor.save_pretrained(output)
        processor.image_processor.save_pretrained(output)
        problems = [draw_problem(0, "validation", index) for index in range(recipe.validation)]
        accuracy = measure(model.float(), processor, problems)
    report = {
        "command": f"python -m {__spec__.name} --output DIR --seed {recipe.seed} --steps {recipe.steps}",
        "recipe": asdict(recipe),
        "careless_share": CARELESS_SHARE,
        "malformed_share": MALFORMED_SHARE,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(seconds, 1),
        "losses": losses,
        "validation_accuracy": accuracy,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers")},
    }
    (output / "training.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(accuracy), file=sys.stderr)


@contextmanager
def _reproducible(recipe: Recipe) -> Iterator[None]:
    """Seeds torch, fixes what its sums depend on, and gives everything back afterwards."""
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(recipe.seed)
        torch.set_num_threads(recipe.threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(deterministic)
            torch.set_num_threads(threads)


def prompt_text(processor: Any, question: str, instruction: str = DEFAULT_INSTRUCTION) -> str:
    """The chat prompt of a question about one picture."""
    text = f"{question}\n{instruction}" if instruction else question
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
    return str(processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def measure(
    model: Any, processor: Any, problems: Sequence[Problem], temperature: float = 0.6, top_p: float = 0.95
) -> dict[str, float]:
    """Share of the problems answered right when sampled, in all and by kind."""
    right: dict[str, list[bool]] = defaultdict(list)
    for start in range(0, len(problems), 128):
        some = problems[start : start + 128]
        for problem, response in zip(some, _sample(model, processor, some, temperature, top_p), strict=True):
            boxed = re.findall(r"\\boxed\{([^}]*)\}", response)
            right[problem.kind].append(bool(boxed) and boxed[-1] == problem.answer)
    everything = [hit for hits in right.values() for hit in hits]
    return {name: round(sum(hits) / len(hits), 4) for name, hits in {"all": everything, **right}.items()}


def _corpus(recipe: Recipe) -> Iterator[str]:
    for index in range(recipe.corpus):
        shown = _demonstration(recipe, index)
        yield f"system\nuser\n{shown.problem.question}\n{DEFAULT_INSTRUCTION}\nassistant\n{shown.response}"


def _demonstration(recipe: Recipe, index: int) -> Demonstration:
    problem = draw_problem(recipe.seed, "pretrain", index)
    return Demonstration(problem, demonstration(problem, Random(f"{recipe.seed}/demonstration/{index}")))


def _train(model: Any, processor: Any, recipe: Recipe) -> list[float]:
    """The training loop; returns the mean loss of every hundredth part of it."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_factor(step, recipe))
    model.train()
    window, losses = max(1, recipe.steps // 100), []
    total = 0.0
    for step in range(recipe.steps):
        shown = [_demonstration(recipe, step * recipe.batch + i) for i in range(recipe.batch)]
        loss = model(**_inputs(processor, shown, _instruction(step, recipe))).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if (step + 1) % window == 0:
            losses.append(round(total / window, 4))
            total = 0.0
            print(f"step {step + 1}/{recipe.steps}  loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    model.eval()
    return losses


def _learning_rate_factor(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    return 0.5 + 0.5 * math.cos(math.pi * (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup))


def _instruction(step: int, recipe: Recipe) -> str:
    short = step < 0.8 * recipe.steps and Random(f"{recipe.seed}/prompt/{step}").random() < recipe.short_prompts
    return "" if short else DEFAULT_INSTRUCTION


def _inputs(processor: Any, shown: Sequence[Demonstration], instruction: str) -> dict[str, Any]:
    """One batch, padded on the right; only the response and its end token are learned."""
    texts = [
        prompt_text(processor, item.problem.question, instruction) + item.response + "<|im_end|>" for item in shown
    ]
    batch = processor(
        text=texts,
        images=[item.problem.image for item in shown],
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    starts = (batch["input_ids"] == processor.tokenizer.convert_tokens_to_ids("<|im_start|>")).int()
    header = len(processor.tokenizer("<|im_start|>assistant\n")["input_ids"])
    for row, marks in zip(labels, starts, strict=True):
        row[: int(marks.nonzero()[-1]) + header] = IGNORED
    return {**batch, "labels": labels}


def _sample(model: Any, processor: Any, problems: Sequence[Problem], temperature: float, top_p: float) -> list[str]:
    import torch

    batch = processor(
        text=[prompt_text(processor, problem.question) for problem in problems],
        images=[problem.image for problem in problems],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    with torch.no_grad():
        tokens = model.generate(
            **batch, max_new_tokens=64, do_sample=True, temperature=temperature, top_p=top_p, top_k=0
        )
    responses: list[str] = processor.tokenizer.batch_decode(
        tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return responses


if __name__ == "__main__":
    main()
