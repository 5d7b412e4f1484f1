"""Drawing, generating and grading: nothing is mixed up, and what cannot be used is set aside and counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from accelerate import Accelerator

from fastrl_cli.config.data import DataConfig
from fastrl_cli.data.problems import OverlongPromptError
from fastrl_cli.data.sample import EncodedImage, Sample
from fastrl_cli.errors import DataError
from fastrl_cli.models.processing import Processing
from fastrl_cli.rollout.rollout import Generation, Reward, Rollout, Sampling, ignore
from fastrl_cli.sampling import QuestionStream
from fastrl_cli.training.collect import Collector, permute_rewards
from fastrl_cli.training.faults import Faults
from tests.training.conftest import questions


class Echo:
    """Answers each prompt with the seeds it was given: what a mix-up would show."""

    name = "echo"
    policy_version = 3
    trusted_logprobs = True

    def generate(self, prompts, n, sampling, seeds, done=ignore):
        made = [
            [Generation(np.array([48 + k, 49], dtype=np.int32), np.zeros(2, np.float32), "stop", 3) for k in range(n)]
            for _ in prompts
        ]
        for place, generations in enumerate(made):
            done(place, generations)
        return made


class OwnAnswer:
    """Rewards a rollout by its own sample's answer."""

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Reward | None]:
        return [Reward({"accuracy": float(r.sample.row)}, float(r.sample.row), float(r.sample.row)) for r in rollouts]


@pytest.fixture
def collector_of(model_folder):
    """A collector over some samples."""

    def make(samples: Sequence[Sample], reward=None, said: list[str] | None = None, **settings) -> Collector:
        overlong_is_error = settings.pop("overlong_is_error", False)
        processing = Processing.load(model_folder("qwen2_5_vl"), DataConfig(**settings))
        faults = Faults(3, (said if said is not None else []).append, Accelerator(cpu=True))
        stream = QuestionStream(len(samples), len(samples), seed=0)
        return Collector(
            samples, stream, processing, Echo(), Sampling(), reward or OwnAnswer(), Accelerator(cpu=True), faults,
            seed=1, overlong_is_error=overlong_is_error,
        )  # fmt: skip

    return make


def collect(collector: Collector, count: int, n: int = 2):
    drawn = collector.draw(count)
    groups = collector.generate(drawn, n, step=1)
    collector.grade(groups)
    return collector.exchange(drawn, groups)


def test_row_3_the_same_text_with_different_pictures_stays_two_groups(collector_of):
    first, second = (replace(sample, question="Find x.") for sample in questions([1, 1]))
    groups = collect(collector_of([first, second]), 2)
    assert len({group.question.draw for group in groups}) == 2
    assert {rollout.sample.id for group in groups for rollout in group.rollouts} == {first.id, second.id}


def test_the_same_question_drawn_twice_makes_two_groups(collector_of):
    groups = collect(collector_of(questions([0])), 3)
    assert len(groups) == 3
    assert len({group.question.draw for group in groups}) == 3
    seeds = [rollout.seed for group in groups for rollout in group.rollouts]
    assert len(set(seeds)) == len(seeds)


def test_row_5_each_reward_sees_its_own_sample(collector_of):
    groups = collect(collector_of(questions([0, 1, 2, 0, 1])), 5)
    for group in groups:
        assert {rollout.reward.total for rollout in group.rollouts} == {float(group.question.prompt.sample.row)}


def test_row_29_a_bad_picture_is_set_aside_and_counted(collector_of):
    samples = questions([1, 1, 1])
    broken = EncodedImage(samples[1].images[0].data[:200] + b"\0" * 400)
    samples[1] = replace(samples[1], images=(broken,))
    samples[2] = replace(samples[2], images=(EncodedImage(b"no picture"),))
    said: list[str] = []
    collector = collector_of(samples, said=said)
    groups = collect(collector, 3)
    assert {group.question.prompt.sample.id for group in groups} == {samples[0].id}
    assert collector.faults.metrics()["faults/bad_images"] >= 2
    assert any(samples[1].id in text for text in said)
    assert any(samples[2].id in text for text in said)


def test_row_24_an_overlong_prompt_is_dropped_and_counted_or_an_error(collector_of):
    samples = questions([0, 0])
    samples[1] = replace(samples[1], question="long " * 400)
    collector = collector_of(samples, max_prompt_tokens=1000)
    groups = collect(collector, 2)
    assert {group.question.prompt.sample.id for group in groups} == {samples[0].id}
    assert collector.faults.metrics()["faults/overlong_prompts"] >= 1
    with pytest.raises(OverlongPromptError, match=samples[1].id):
        collector_of(samples, max_prompt_tokens=1000, overlong_is_error=True).draw(4)


def test_data_that_cannot_be_used_is_refused_before_the_run(collector_of):
    good = questions([1, 1])
    collector_of(good).check_questions()
    cut = [replace(sample, images=(EncodedImage(sample.images[0].data[:300]),)) for sample in good]
    collector_of([cut[0], good[1]]).check_questions()
    with pytest.raises(DataError, match="none of the first"):
        collector_of(cut).check_questions()
    long = replace(good[1], question="long " * 400)
    collector_of([good[0], long], max_prompt_tokens=1000).check_questions()
    with pytest.raises(OverlongPromptError, match=long.id):
        collector_of([good[0], long], max_prompt_tokens=1000, overlong_is_error=True).check_questions()


def test_no_usable_question_at_all_is_an_error(collector_of):
    samples = [replace(sample, images=(EncodedImage(b""),)) for sample in questions([1, 1])]
    with pytest.raises(DataError, match="none of the 2 questions can be used"):
        collector_of(samples).draw(1)


def test_a_reward_that_crashes_on_one_rollout_sets_that_one_aside(collector_of):
    class Fragile:
        def __call__(self, rollouts):
            if any(rollout.index == 1 for rollout in rollouts):
                raise RuntimeError("boom")
            return [Reward({}, 1.0, 1.0) for _ in rollouts]

    said: list[str] = []
    collector = collector_of(questions([0, 0]), Fragile(), said)
    groups = collect(collector, 2, n=3)
    assert [[rollout.index for rollout in group.rollouts] for group in groups] == [[0, 2], [0, 2]]
    assert collector.faults.metrics()["faults/reward_failures"] == 2
    assert any("boom" in text for text in said)


def test_a_group_left_with_one_rollout_is_dropped(collector_of):
    class OnlyFirst:
        def __call__(self, rollouts):
            return [Reward({}, 1.0, 1.0) if rollout.index == 0 else None for rollout in rollouts]

    assert collect(collector_of(questions([0, 0]), OnlyFirst()), 2) == []


def test_permuted_rewards_are_the_same_rewards_elsewhere(collector_of):
    groups = collect(collector_of(questions([0] * 8)), 8)
    before = [rollout.reward.total for group in groups for rollout in group.rollouts]
    permute_rewards(groups, seed=3)
    after = [rollout.reward.total for group in groups for rollout in group.rollouts]
    assert sorted(before) == sorted(after)
    assert before != after
    assert any(len({rollout.reward.total for rollout in group.rollouts}) > 1 for group in groups)


def test_rewards_are_given_while_other_questions_are_still_generated(collector_of):
    graded = threading.Event()

    class Waiting(Echo):
        """Makes the second question's responses only once the first question's have their rewards."""

        def generate(self, prompts, n, sampling, seeds, done=ignore):
            made = super().generate(prompts, n, sampling, seeds)
            done(0, made[0])
            assert graded.wait(30), "nothing is graded before all is generated"
            done(1, made[1])
            return made

    class Telling(OwnAnswer):
        def __call__(self, rollouts):
            graded.set()
            return super().__call__(rollouts)

    collector = collector_of(questions([0, 0]), reward=Telling())
    collector.engine = Waiting()
    assert [len(group.rollouts) for group in collect(collector, 2)] == [2, 2]
