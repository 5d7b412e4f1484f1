"""The shipped vision-language model: its size, its tokenizer, that it loads, and what it can and cannot do."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from fastrl_cli.data.builtin import draw_problem
from fastrl_cli.data.builtin.kinds import KINDS
from fastrl_cli.models.builtin.demonstrations import CARELESS_SHARE, MALFORMED_SHARE, careless, demonstration
from fastrl_cli.models.builtin.pretrain import Recipe, measure, pretrain
from fastrl_cli.models.load import ASSETS
from fastrl_cli.models.torchvision_cure import cure
from fastrl_cli.rewards import well_formed

WEIGHTS = ASSETS / "model.safetensors"


@pytest.fixture(scope="module")
def processor() -> Any:
    cure()
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(ASSETS)


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    cure()
    import torch
    from transformers import AutoModelForImageTextToText

    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield AutoModelForImageTextToText.from_pretrained(ASSETS, dtype=torch.float32).eval()


def test_weights_and_tokenizer_take_at_most_3_megabytes() -> None:
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) <= 3_000_000
    with safe_open(WEIGHTS, "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_comes_back(processor: Any, text: str) -> None:
    tokenizer = processor.tokenizer
    assert tokenizer.decode(tokenizer(text, split_special_tokens=True)["input_ids"]) == text


def test_every_byte_has_a_token(processor: Any) -> None:
    """Bytes that are no text on their own too: every one of the 256 has its token."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = processor.tokenizer.get_vocab()
    assert len(ByteLevel.alphabet()) == 256
    assert all(byte in vocabulary for byte in ByteLevel.alphabet())


def test_problems_and_solutions_are_short(processor: Any) -> None:
    for index in range(len(KINDS)):
        problem = draw_problem(0, "train", index)
        assert len(processor.tokenizer(problem.solution)["input_ids"]) <= 24
        batch = processor(text=["<|image_pad|>"], images=[problem.image], return_tensors="pt")
        assert batch["image_grid_thw"].tolist() == [[1, 6, 6]]
        assert batch["input_ids"].shape == (1, 9)


def test_the_model_loads_in_float32_and_forbids_nothing_of_its_relatives(model: Any, processor: Any) -> None:
    import torch

    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.model_type == "qwen2_5_vl"
    assert model.config.text_config.max_position_embeddings >= 8192
    assert processor.tokenizer.convert_tokens_to_ids("<|im_end|>") in model.generation_config.eos_token_id
    assert model.config.image_token_id == processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")


def test_shares_of_careless_and_malformed_demonstrations_are_as_recorded() -> None:
    problems = [draw_problem(0, "pretrain", index) for index in range(len(KINDS))]
    responses = [
        (problem, demonstration(problem, Random(f"{problem.kind}/{i}"))) for problem in problems for i in range(500)
    ]
    wrong = sum(careless(problem.kind, problem.values)[0] in response for problem, response in responses)
    malformed = sum(not well_formed(response) for _, response in responses)
    assert wrong / len(responses) == pytest.approx(CARELESS_SHARE, abs=0.03)
    assert malformed / len(responses) == pytest.approx(MALFORMED_SHARE, abs=0.02)
    recorded = json.loads((ASSETS / "training.json").read_text())
    assert (recorded["careless_share"], recorded["malformed_share"]) == (CARELESS_SHARE, MALFORMED_SHARE)


def test_a_careless_method_gives_a_wrong_answer_that_looks_like_another() -> None:
    for index in range(20 * len(KINDS)):
        problem = draw_problem(1, "pretrain", index)
        work, answer = careless(problem.kind, problem.values)
        assert work.split()[0] != problem.work.split()[0]
        assert work.endswith(answer)
        assert answer.isdigit()


@pytest.mark.slow
def test_the_model_starts_between_30_and_60_percent(model: Any, processor: Any) -> None:
    problems = [draw_problem(0, "validation", index) for index in range(256)]
    assert 0.30 < measure(model, processor, problems)["all"] < 0.60


@pytest.mark.slow
def test_the_answer_is_in_the_picture(model: Any, processor: Any) -> None:
    """With the pictures moved to other questions of the kind, the model is at most 3 points above the best constant."""
    problems = [draw_problem(0, "validation", index) for index in range(1020)]
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for problem in problems:
        answers[problem.kind][problem.answer] += 1
    constant = sum(counts.most_common(1)[0][1] for counts in answers.values()) / len(problems)
    others = problems[len(KINDS) :] + problems[: len(KINDS)]
    assert all(problem.kind == other.kind for problem, other in zip(problems, others, strict=True))
    moved = [replace(problem, image=other.image) for problem, other in zip(problems, others, strict=True)]
    assert measure(model, processor, moved)["all"] <= constant + 0.03


@pytest.mark.slow
def test_pretraining_gives_the_same_bits_twice(tmp_path: Path) -> None:
    recipe = Recipe(steps=3, batch=8, corpus=200, validation=8, threads=1)
    for name in ("first", "second"):
        pretrain(tmp_path / name, recipe)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name
