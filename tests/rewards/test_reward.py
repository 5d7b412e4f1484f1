from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.config.run import RewardConfig
from fastrl_cli.data.sample import Draw, Sample
from fastrl_cli.rewards import AccuracyFormatReward, score, shuffle_rewards
from fastrl_cli.rollout.rollout import Generation, Reward, Rollout


def make(text: str, answer: str, number: int = 0) -> Rollout:
    sample = Sample(f"set:{number}", "set/train", number, "How many?", answer)
    tokens = Generation(np.zeros(1, np.int32), np.zeros(1, np.float32), "stop", 0)
    return Rollout(sample, Draw(sample.id, 0), 0, tokens, text, seed=0)


RIGHT = r"<thinking>two pairs</thinking>\boxed{4}"


@pytest.fixture(scope="module")
def reward_function():
    function = AccuracyFormatReward(RewardConfig(workers=1, format_weight=0.5), prefill="")
    yield function
    function.close()


@pytest.mark.parametrize(
    ("text", "answer", "accuracy", "form"),
    [
        (RIGHT, "4", 1, 0.5),
        (RIGHT, "5", 0, 0.5),
        (r"\boxed{4}", "4", 1, 0.0),
        ("4", "4", 0, 0.0),
        ("The answer is 4", "4", 0, 0.0),
        (r"<thinking>x</thinking>\boxed{4°}", "4", 1, 0.5),
        (r"<thinking>x</thinking><answer>4</answer>", "4", 1, 0.0),
    ],
)
def test_parts(reward_function, text, answer, accuracy, form):
    (reward,) = reward_function([make(text, answer)])
    assert reward.parts == {"accuracy": accuracy, "format": form}
    assert reward.accuracy == accuracy
    assert reward.total == accuracy + form


def test_details_name_the_extraction(reward_function):
    found, nothing = reward_function([make(RIGHT, "4"), make("no idea", "4")])
    assert found.details == {"rule": "boxed", "extraction": "4"}
    assert nothing.details == {"rule": "none"}


def test_each_reward_sees_its_own_answer(reward_function):
    rollouts = [make(rf"\boxed{{{i % 7}}}", str(i % 5), i) for i in range(70)]
    rewards = reward_function(rollouts)
    assert [reward.accuracy for reward in rewards] == [float(i % 7 == i % 5) for i in range(70)]


@given(st.text())
def test_the_text_is_never_altered(text: str):
    function = AccuracyFormatReward(RewardConfig(workers=1), prefill="")
    rollout = make(text, "4")
    function([rollout])
    assert rollout.text is text


def test_the_built_in_kind_of_answer_needs_no_worker(reward_function):
    fresh = AccuracyFormatReward(RewardConfig(workers=1), prefill="")
    fresh([make(rf"<thinking>x</thinking>\boxed{{{i}}}", str(i)) for i in range(50)])
    assert fresh.grader.pool.process_ids == []


def plain_reward(rollout: Rollout) -> Reward:
    return Reward({"length": 1.0}, 1.0, 0.0, {"id": rollout.sample.id})


def test_a_crash_sets_only_its_rollout_aside():
    def function(rollouts: Sequence[Rollout]) -> list[Reward | None]:
        for rollout in rollouts:
            if rollout.sample.row == 2:
                raise RuntimeError("boom")
        return [plain_reward(rollout) for rollout in rollouts]

    scored = score([make(RIGHT, "4", i) for i in range(4)], function)
    assert [reward and reward.details["id"] for reward in scored.rewards] == ["set:0", "set:1", None, "set:3"]
    assert [str(failure) for failure in scored.failures] == ["rollout 0 of question set:2: RuntimeError: boom"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(None, "set it aside"), (Reward({}, float("nan"), 0.0), "nan"), (Reward({}, float("inf"), 0.0), "inf")],
)
def test_rewards_that_cannot_be_used_are_set_aside(bad, reason):
    scored = score(
        [make(RIGHT, "4", i) for i in range(3)],
        lambda rollouts: [bad if rollout.sample.row == 1 else plain_reward(rollout) for rollout in rollouts],
    )
    assert [reward is None for reward in scored.rewards] == [False, True, False]
    assert len(scored.failures) == 1
    assert "set:1" in str(scored.failures[0]) and reason in str(scored.failures[0])


def test_a_wrong_number_of_rewards_is_a_failure():
    scored = score([make(RIGHT, "4", i) for i in range(3)], lambda rollouts: [])
    assert scored.rewards == [None, None, None]
    assert all("returned 0 rewards" in str(failure) for failure in scored.failures)


def test_scoring_leaves_the_rollouts_alone(reward_function):
    rollout = make(RIGHT, "4")
    assert score([rollout], reward_function).rewards[0].total == 1.5
    assert rollout.reward is None


def test_shuffled_rewards_are_a_permutation_that_keeps_holes():
    rewards = [None if i % 9 == 0 else Reward({"accuracy": float(i)}, float(i), 0.0) for i in range(60)]
    shuffled = shuffle_rewards(rewards, seed=3)
    assert shuffled == shuffle_rewards(rewards, seed=3) != shuffle_rewards(rewards, seed=4)
    assert shuffled != rewards
    assert [reward is None for reward in shuffled] == [reward is None for reward in rewards]
    assert sorted(r.total for r in shuffled if r) == sorted(r.total for r in rewards if r)
