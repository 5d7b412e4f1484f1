from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.pruning.advantage_groups import advantage_groups
from tests.pruning.strategies import make_group, property_test

VALUES = st.lists(st.floats(-3, 3), min_size=1, max_size=10)


def parts_of(advantages: list[float], by: str, eps: float = 1e-4) -> list[list[int]]:
    group = make_group([[0]] * len(advantages), [0.0] * len(advantages), advantages=advantages)
    return advantage_groups(group, by, eps)


def test_by_reward() -> None:
    group = make_group([[0]] * 5, [1.0, 0.5, 1.0, 0.0, 0.5])
    assert sorted(map(sorted, advantage_groups(group, "reward", 1e-4))) == [[0, 2], [1, 4], [3]]


def test_by_reward_uses_the_keys_where_given() -> None:
    keys = [(1, True), (1, True), (0, True)]
    group = make_group([[0]] * 3, [1.4, 1.3, 0.2], keys=keys)
    parts = advantage_groups(group, "reward", 1e-4)
    assert sorted(map(sorted, parts)) == [[0, 1], [2]]
    assert [0, 1] in parts, "largest advantage first"


def test_parts_are_ordered_by_magnitude_then_index() -> None:
    group = make_group([[0]] * 4, [0.0] * 4, advantages=[-0.5, 2.0, -2.0, -0.5])
    assert advantage_groups(group, "reward", 1e-4) == [[1, 2, 0, 3]]


def test_by_rounding_to_four_decimals() -> None:
    parts = parts_of([0.12344, 0.12341, 0.12349, -0.00001, 0.00001], "adv_round4")
    assert sorted(map(sorted, parts)) == [[0, 1], [2], [3, 4]]


def test_by_gaps_is_transitive_where_pairs_are_not() -> None:
    assert sorted(map(sorted, parts_of([0.0, 0.8, 1.6, 5.0], "adv_eps", 1.0))) == [[0, 1, 2], [3]]


def test_a_gap_of_exactly_eps_separates() -> None:
    assert len(parts_of([0.0, 0.25], "adv_eps", 0.25)) == 2
    assert len(parts_of([0.0, 0.25], "adv_eps", 0.26)) == 1


@property_test
@given(VALUES, st.floats(1e-4, 1), st.randoms())
def test_gap_clusters_do_not_depend_on_the_order(values: list[float], eps: float, random: object) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    one = {frozenset(part) for part in parts_of(values, "adv_eps", eps)}
    other = parts_of([values[i] for i in order], "adv_eps", eps)
    assert one == {frozenset(order[i] for i in part) for part in other}


@property_test
@given(VALUES, st.sampled_from(["reward", "adv_round4", "adv_eps"]))
def test_parts_are_a_partition(values: list[float], by: str) -> None:
    parts = parts_of(values, by)
    assert sorted(i for part in parts for i in part) == list(range(len(values)))
    for part in parts:
        assert (np.diff(np.abs(np.asarray(values))[part]) <= 0).all()
