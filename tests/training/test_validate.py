"""Evaluation asks each question as often as it is told to, with its own seeds."""

from __future__ import annotations

import pytest
from accelerate import Accelerator

from fastrl_cli.config.data import DataConfig
from fastrl_cli.data.sample import EncodedImage
from fastrl_cli.errors import DataError
from fastrl_cli.evaluation.validate import Validator
from fastrl_cli.models.processing import Processing
from fastrl_cli.reporting.metrics import validate
from fastrl_cli.rollout.rollout import Reward, Sampling, ignore
from tests.training.conftest import questions
from tests.training.test_collect import Echo


def by_index(rollouts):
    """Right on even questions and on the first response."""
    rights = [float(r.index == 0 and r.sample.row % 2 == 0) for r in rollouts]
    return [Reward({"accuracy": right, "format": 0.5}, right + 0.5, right) for right in rights]


class Counting(Echo):
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.seeds: list[int] = []

    def generate(self, prompts, n, sampling, seeds, done=ignore):
        self.asked.append((len(prompts), n))
        self.seeds += seeds
        return super().generate(prompts, n, sampling, seeds, done)


@pytest.fixture
def make_validator(model_folder):
    def make(samples, rollouts: int, seed: int = 5) -> Validator:
        processing = Processing.load(model_folder("qwen2_5_vl"), DataConfig())
        return Validator(samples, processing, by_index, Sampling(), rollouts, Accelerator(cpu=True), seed)

    return make


@pytest.mark.parametrize("rollouts", [1, 3])
def test_row_43_evaluation_has_its_own_number_of_responses(make_validator, rollouts: int):
    engine = Counting()
    evaluation = make_validator(questions([0, 1, 2, 0]), rollouts).run(engine)
    assert engine.asked == [(4, rollouts)]
    validate({**evaluation.metrics, "step": 0})
    assert evaluation.metrics["eval/accuracy"] == pytest.approx(2 / (4 * rollouts))
    assert evaluation.metrics["eval/rollouts"] == rollouts
    assert evaluation.metrics["eval/format"] == 1


def test_the_seeds_depend_on_the_question_and_not_on_its_neighbours(make_validator):
    samples = questions([0, 1, 2])
    whole, part = Counting(), Counting()
    make_validator(samples, 2).run(whole)
    make_validator(samples[1:], 2).run(part)
    assert whole.seeds[1:] == part.seeds
    assert len({seed + k for seed in whole.seeds for k in range(2)}) == 6


def test_unusable_questions_count_as_wrong(make_validator):
    samples = questions([0, 1, 0])
    broken = type(samples[1])(**{**vars(samples[1]), "images": (EncodedImage(b"x"),)})
    evaluation = make_validator([samples[0], broken, samples[2]], 1).run(Counting())
    assert evaluation.unusable == 1
    assert evaluation.metrics["eval/accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="none of the 1 validation questions"):
        make_validator([broken], 1).run(Counting())


def test_rollouts_are_in_the_order_of_the_questions_whatever_order_the_processes_give(make_validator, monkeypatch):
    samples = questions([0, 1, 2])
    monkeypatch.setattr("fastrl_cli.training.ranks.gather", lambda items, accelerator: items[::-1])
    evaluation = make_validator(samples, 2).run(Counting())
    assert [(r.sample.row, r.index) for r in evaluation.rollouts] == [(s.row, k) for s in samples for k in range(2)]
