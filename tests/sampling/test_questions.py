from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl_cli.errors import DataError, UsageError
from fastrl_cli.sampling import QuestionStream, RunLength, run_length, steps_per_epoch


def indices(stream: QuestionStream, k: int) -> list[int]:
    return [index for index, _ in stream.take(k)]


@pytest.mark.parametrize(
    ("questions", "per_step", "steps"), [(2101, 256, 8), (8031, 256, 31), (256, 16, 16), (10, 16, 1), (16, 16, 1)]
)
def test_steps_per_epoch_leave_out_the_last_partial_step(questions: int, per_step: int, steps: int) -> None:
    assert steps_per_epoch(questions, per_step) == steps


def test_the_papers_run_lengths() -> None:
    assert run_length(2101, 256, steps=None, epochs=25) == RunLength(200, Fraction(25))
    assert run_length(8031, 256, steps=None, epochs=15) == RunLength(465, Fraction(15))


def test_steps_overrule_epochs() -> None:
    assert run_length(64, 8, steps=20, epochs=99) == RunLength(20, Fraction(5, 2))
    assert run_length(2101, 256, steps=8, epochs=25) == RunLength(8, None)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**40), st.integers(1, 4))
def test_an_epoch_draws_no_question_twice(questions: int, per_step: int, seed: int, epochs: int) -> None:
    stream = QuestionStream(questions, per_step, seed=seed)
    length = questions // per_step * per_step or questions
    for epoch in range(epochs):
        assert stream.epoch == epoch
        drawn = indices(stream, length)
        assert len(set(drawn)) == length
        assert set(drawn) <= set(range(questions))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    stream, same, other = (QuestionStream(50, 10, seed=seed) for seed in (1, 1, 2))
    first, second = indices(stream, 50), indices(stream, 50)
    assert first != second
    assert first == indices(same, 50)
    assert first != indices(other, 50)


def test_the_order_is_fixed_for_good() -> None:
    assert indices(QuestionStream(8, 4, seed=0), 8) == [0, 3, 7, 5, 1, 2, 6, 4]


def test_draws_are_numbered_over_the_whole_run() -> None:
    stream = QuestionStream(3, 2, seed=0)
    numbers = [number for _ in range(4) for _, number in stream.take(3)]
    assert numbers == list(range(12))


def test_a_small_data_set_wraps_around_inside_a_step() -> None:
    stream = QuestionStream(3, 8, seed=5)
    drawn = indices(stream, 8)
    assert sorted(drawn[:3]) == sorted(drawn[3:6]) == [0, 1, 2]
    assert sorted(drawn[6:] + indices(stream, 1)) == [0, 1, 2]


def test_without_shuffling_questions_come_in_their_order() -> None:
    stream = QuestionStream(5, 2, seed=9, shuffle=False)
    assert indices(stream, 9) == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12))
def test_state_round_trip_goes_on_where_it_stopped(takes: list[int], stop: int) -> None:
    whole = QuestionStream(7, 3, seed=4)
    drawn = [whole.take(k) for k in takes]
    before, after = QuestionStream(7, 3, seed=4), QuestionStream(7, 3, seed=4)
    first = [before.take(k) for k in takes[:stop]]
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + [after.take(k) for k in takes[stop:]] == drawn


def test_how_the_draws_are_cut_into_takes_does_not_matter() -> None:
    one, other = QuestionStream(7, 3, seed=4), QuestionStream(7, 3, seed=4)
    assert one.take(20) == [draw for k in (1, 0, 6, 13) for draw in other.take(k)]


def test_a_state_of_another_data_set_is_refused() -> None:
    state = QuestionStream(300, 10, seed=0).state_dict()
    with pytest.raises(UsageError, match="questions = 300, this run has 256"):
        QuestionStream(256, 10, seed=0).load_state_dict(state)


def test_no_questions_are_an_error() -> None:
    with pytest.raises(DataError, match="no usable question"):
        QuestionStream(0, 4, seed=0)
