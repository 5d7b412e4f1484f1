"""The alignment fill: METHOD c.2 item 9."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.config.pruning import FillConfig, MDAPConfig
from fastrl_cli.pruning import Group, Reason, Selection, select
from tests.pruning.strategies import batches, make_group, property_test

BY_ID = MDAPConfig(fill=FillConfig(start="id"))


def filled_questions(selection: Selection) -> list[int]:
    return [q for q, reasons in enumerate(selection.reasons) if Reason.FILL in reasons]


def same_answers(rows: list[int], n: int = 4) -> list[Group]:
    """Groups of n equal rollouts, of which one is kept before the fill."""
    return [make_group([[1, 2]] * n, [1] * n, question=f"toy:{row}") for row in rows]


@property_test
@given(
    batches(),
    st.integers(1, 9),
    st.integers(1, 20),
    st.sampled_from(["rotate", "id"]),
    st.sampled_from(["keep", "drop"]),
)
def test_c2_09_fill(batch: list[Group], divisor: int, step: int, start: str, degenerate: str) -> None:
    config = MDAPConfig(fill=FillConfig(start=start), degenerate=degenerate)
    before = select(batch, MDAPConfig(fill=None, degenerate=degenerate))
    after = select(batch, config, divisor=divisor, step=step)
    total = sum(after.counts)

    assert after.unaligned == (total % divisor != 0)
    left = sum(reasons.count(Reason.PRUNED) for reasons in before.reasons)
    need = -sum(before.counts) % divisor
    assert after.filled.sum() == (need if need <= left else 0), "the next multiple, or nothing"
    assert after.unaligned == (need > left)
    assert after.phase1.tolist() == before.counts

    for group, old, new, reasons in zip(batch, before.kept, after.kept, after.reasons, strict=True):
        assert set(old) <= set(new)
        assert np.array_equal(new, np.unique(new)), "sorted, without duplicates"
        fills = [i for i, reason in enumerate(reasons) if reason is Reason.FILL]
        passed_over = [i for i, reason in enumerate(reasons) if reason is Reason.PRUNED]
        magnitude = np.abs(group.advantages)
        assert all((magnitude[i], -i) > (magnitude[j], -j) for i in fills for j in passed_over)

    still_open = [q for q, reasons in enumerate(after.reasons) if Reason.PRUNED in reasons]
    for q in still_open:
        assert after.filled.max() - after.filled[q] <= 1, "a question with rollouts left is at most one turn behind"


def test_c2_09_nothing_is_added_where_the_total_already_divides() -> None:
    selection = select(same_answers([0, 1, 2]), MDAPConfig(), divisor=3)
    assert selection.filled.tolist() == [0, 0, 0]
    assert not selection.unaligned


def test_c2_09_too_few_rollouts_add_nothing_and_are_reported() -> None:
    selection = select(same_answers([0, 1], n=2), MDAPConfig(), divisor=5)
    assert selection.counts == [1, 1]
    assert selection.unaligned


def test_c2_09_all_rollouts_may_be_needed() -> None:
    selection = select(same_answers([0, 1], n=2), MDAPConfig(), divisor=4)
    assert selection.counts == [2, 2]
    assert not selection.unaligned


def test_dropped_groups_are_never_filled_from() -> None:
    batch = [*same_answers([0]), make_group([[1], [1], [1]], [1, 1, 0], question="toy:1")]
    selection = select(batch, MDAPConfig(degenerate="drop"), divisor=3)
    assert selection.counts == [0, 3]
    assert select(batch, MDAPConfig(degenerate="drop"), divisor=4).unaligned


def test_without_a_fill_the_last_batch_is_ragged() -> None:
    selection = select(same_answers([0, 1]), MDAPConfig(fill=None), divisor=4)
    assert selection.counts == [1, 1]
    assert selection.unaligned


def test_start_id_always_begins_with_the_lowest_row() -> None:
    batch = same_answers([10, 9, 2])
    for step in (1, 2, 3):
        assert filled_questions(select(batch, BY_ID, divisor=4, step=step)) == [2]
        assert filled_questions(select(batch, BY_ID, divisor=5, step=step)) == [1, 2]


def test_start_rotates_so_that_every_question_is_first_as_often() -> None:
    batch = same_answers([0, 1, 2, 3])
    firsts = [filled_questions(select(batch, MDAPConfig(), divisor=5, step=step))[0] for step in range(1, 9)]
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("start", ["rotate", "id"])
def test_fill_does_not_depend_on_the_order_of_the_questions(start: str) -> None:
    batch = same_answers([0, 1, 2, 3, 4])
    config = MDAPConfig(fill=FillConfig(start=start))
    straight = select(batch, config, divisor=7, step=3)
    backward = select(batch[::-1], config, divisor=7, step=3)
    assert straight.reasons == backward.reasons[::-1]
