"""MDAP before the fill: METHOD c.2 items 1 to 8, 11 and 12."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.config.pruning import MDAPConfig
from fastrl_cli.pruning import Group, Reason, select
from tests.pruning.strategies import batches, distance, groups, make_group, property_test

PAPER = MDAPConfig(fill=None)
RELEASE = MDAPConfig(compare="seed", boundary="prune", group_by="adv_round4", fill=None)
TAUS = st.sampled_from([0.05, 0.2, 0.25, 0.5, 0.75, 0.8, 1.0])


def kept(group: Group, config: MDAPConfig) -> list[int]:
    return select([group], config).kept[0].tolist()


def with_(config: MDAPConfig, **changes: object) -> MDAPConfig:
    return MDAPConfig.model_validate(config.model_dump() | changes)


@property_test
@given(groups())
def test_c2_01_tau_zero_selects_everything(group: Group) -> None:
    assert kept(group, with_(PAPER, tau=0)) == list(range(len(group)))


def test_c2_01_release_prunes_equal_token_sets_at_tau_zero() -> None:
    group = make_group([[1, 2], [2, 1], [3]], [1, 1, 1])
    assert kept(group, with_(RELEASE, tau=0)) == [0, 2]


@property_test
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), min_size=1, max_size=12), TAUS, st.sampled_from([PAPER, RELEASE])
)
def test_c2_02_identical_rollouts_leave_one_for_each_advantage(
    rewards: list[float], tau: float, config: MDAPConfig
) -> None:
    texts = {0.0: [1, 2, 3], 0.5: [4, 5], 1.0: [], 1.5: [1]}
    group = make_group([texts[reward] for reward in rewards], rewards)
    first_of_each = sorted(rewards.index(reward) for reward in set(rewards))
    assert kept(group, with_(config, tau=tau)) == first_of_each


def test_c2_03_duplicates_of_a_kept_rollout_survive_only_in_seed_mode() -> None:
    group = make_group([[1, 2], [3, 4], [3, 4]], [1, 1, 1])
    assert kept(group, PAPER) == [0, 1]
    assert kept(group, with_(PAPER, compare="seed")) == [0, 1, 2]


def test_c2_04_boundary_is_kept_by_the_paper_and_pruned_by_the_release() -> None:
    group = make_group([[1, 2, 3], [3, 4, 5]], [1, 1])
    assert distance([1, 2, 3], [3, 4, 5]) == Fraction(4, 5)
    assert kept(group, PAPER) == [0, 1]
    assert kept(group, RELEASE) == [0]
    assert kept(group, with_(PAPER, boundary="prune")) == [0]


def test_c2_04_tau_one_keeps_disjoint_rollouts_in_the_paper_alone() -> None:
    group = make_group([[1], [2], [2, 3]], [1, 1, 1])
    assert kept(group, with_(PAPER, tau=1)) == [0, 1]
    assert kept(group, with_(RELEASE, tau=1)) == [0]


@property_test
@given(groups(), TAUS, st.integers(1, 2), st.sampled_from(["keep", "prune"]))
def test_c2_05_retained_is_independent_and_maximal(group: Group, tau: float, ngram: int, boundary: str) -> None:
    selected = set(kept(group, with_(PAPER, tau=tau, ngram=ngram, boundary=boundary)))
    limit = Fraction(str(tau))

    def alike(i: int, j: int) -> bool:
        theta = distance(group.token_ids[i], group.token_ids[j], ngram)
        return theta < limit or (boundary == "prune" and theta == limit)

    def rivals(i: int) -> list[int]:
        return [j for j in selected if j != i and group.rewards[j] == group.rewards[i]]

    for i in range(len(group)):
        likes = [j for j in rivals(i) if alike(i, j)]
        assert bool(likes) == (i not in selected)


@property_test
@given(groups(), TAUS)
def test_c2_05_seed_mode_compares_with_the_seed_alone(group: Group, tau: float) -> None:
    rounded = np.round(group.advantages, 4)
    expected = []
    for i in range(len(group)):
        same = [j for j in range(len(group)) if rounded[j] == rounded[i]]
        seed = max(same, key=lambda j: (abs(group.advantages[j]), -j))
        if i == seed or distance(group.token_ids[i], group.token_ids[seed]) > Fraction(str(tau)):
            expected.append(i)
    assert kept(group, with_(RELEASE, tau=tau)) == expected


def test_seed_is_the_largest_unrounded_advantage_and_ties_go_to_the_first() -> None:
    same = [[1, 2]] * 3
    assert kept(make_group(same, [1, 1, 1], advantages=[0.50001, 0.50002, 0.50002]), RELEASE) == [1]
    assert kept(make_group(same, [1, 1, 1], advantages=[-0.5, -0.5, -0.5]), RELEASE) == [0]


@property_test
@given(batches(), st.randoms(), st.sampled_from([PAPER, RELEASE]))
def test_c2_06_order_of_the_questions_changes_nothing(batch: list[Group], random: object, config: MDAPConfig) -> None:
    order = list(range(len(batch)))
    random.shuffle(order)
    straight = select(batch, config)
    shuffled = select([batch[q] for q in order], config)
    assert [straight.reasons[q] for q in order] == shuffled.reasons


def test_c2_06_within_a_question_the_first_of_equals_is_kept() -> None:
    chain = [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    config = with_(PAPER, tau=0.6)
    assert kept(make_group(chain, [1, 1, 1]), config) == [0, 2]
    assert kept(make_group([chain[1], chain[0], chain[2]], [1, 1, 1]), config) == [0]


@property_test
@given(batches(), TAUS)
def test_c2_06_equal_input_gives_equal_output(batch: list[Group], tau: float) -> None:
    config = with_(MDAPConfig(), tau=tau)
    assert select(batch, config, divisor=3, step=4).reasons == select(batch, config, divisor=3, step=4).reasons


@property_test
@given(groups(), TAUS, st.sampled_from([PAPER, RELEASE]))
def test_c2_07_every_advantage_and_both_signs_survive(group: Group, tau: float, config: MDAPConfig) -> None:
    indices = kept(group, with_(config, tau=tau))
    assert set(group.rewards[indices]) == set(group.rewards)
    assert set(np.sign(group.advantages[indices])) == set(np.sign(group.advantages))
    assert len(indices) >= 1


def test_c2_08_degenerate_group_keeps_at_least_one_or_is_dropped() -> None:
    group = make_group([[1, 2], [1, 2], [9]], [0.5, 0.5, 0.5])
    assert group.is_degenerate
    assert kept(group, PAPER) == [0, 2]
    dropped = select([group], with_(PAPER, degenerate="drop"))
    assert dropped.kept[0].tolist() == []
    assert dropped.reasons == [[Reason.DROPPED] * 3]


@property_test
@given(batches())
def test_c2_08_dropping_leaves_the_gradient_unchanged_with_the_full_denominator(batch: list[Group]) -> None:
    config = with_(PAPER, tau=0, degenerate="drop")
    total = sum(len(group) for group in batch)
    scores = [np.random.default_rng(q).normal(size=(len(group), 4)) for q, group in enumerate(batch)]
    full = sum(group.advantages @ score for group, score in zip(batch, scores, strict=True)) / total
    selection = select(batch, config)
    rest = sum(
        group.advantages[indices] @ score[indices]
        for group, score, indices in zip(batch, scores, selection.kept, strict=True)
    )
    np.testing.assert_allclose(rest / total, full, atol=1e-12)
    assert all(len(indices) == 0 for group, indices in zip(batch, selection.kept, strict=True) if group.is_degenerate)


@property_test
@given(groups(), st.tuples(TAUS, TAUS))
def test_c2_11_seed_mode_keeps_no_more_at_a_larger_tau(group: Group, taus: tuple[float, float]) -> None:
    low, high = sorted(taus)
    assert set(kept(group, with_(RELEASE, tau=high))) <= set(kept(group, with_(RELEASE, tau=low)))


@property_test
@given(batches())
def test_c2_12_advantages_and_tokens_are_left_as_they_are(batch: list[Group]) -> None:
    before = [(group.advantages.tobytes(), [tokens.tobytes() for tokens in group.token_ids]) for group in batch]
    select(batch, MDAPConfig(), divisor=4)
    after = [(group.advantages.tobytes(), [tokens.tobytes() for tokens in group.token_ids]) for group in batch]
    assert before == after


def test_two_draws_of_one_question_stay_two_groups() -> None:
    first = make_group([[1, 2], [1, 2]], [1, 0], number=3)
    again = make_group([[1, 2], [1, 2]], [1, 0], number=9)
    assert [indices.tolist() for indices in select([first, again], PAPER).kept] == [[0, 1], [0, 1]]


def test_reasons_name_seed_dissimilar_and_pruned() -> None:
    group = make_group([[1, 2], [1, 2], [8, 9], [1, 2]], [1, 1, 1, 0])
    assert select([group], PAPER).reasons == [[Reason.SEED, Reason.PRUNED, Reason.DISSIMILAR, Reason.SEED]]


@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_ngram_order_decides_what_is_alike(ngram: int) -> None:
    group = make_group([[1, 2, 3, 4], [4, 3, 2, 1]], [1, 1])
    assert kept(group, with_(PAPER, ngram=ngram)) == ([0] if ngram == 1 else [0, 1])
