from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.pruning import similarity
from fastrl_cli.pruning.similarity import look_alikes, ngram_sets, overlaps
from tests.pruning.strategies import distance, ngrams, property_test

TOKENS = st.one_of(st.integers(0, 4), st.integers(151_930, 151_935), st.just(2**31 - 1))
RESPONSES = st.lists(st.lists(TOKENS, max_size=15), min_size=1, max_size=8)


def arrays(responses: list[list[int]]) -> list[np.ndarray]:
    return [np.asarray(tokens, np.int32) for tokens in responses]


@property_test
@given(RESPONSES, st.integers(1, 6))
def test_counts_are_those_of_python_sets(responses: list[list[int]], ngram: int) -> None:
    intersection, union = overlaps(ngram_sets(arrays(responses), ngram))
    sets = [ngrams(tokens, ngram) for tokens in responses]
    assert intersection.tolist() == [[len(a & b) for b in sets] for a in sets]
    assert union.tolist() == [[len(a | b) for b in sets] for a in sets]


def test_counts_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    responses = [rng.integers(0, 400, 300, dtype=np.int32) for _ in range(5)]
    whole = overlaps(ngram_sets(responses))
    monkeypatch.setattr(similarity, "_BLOCK", 7)
    for one, other in zip(whole, overlaps(ngram_sets(responses)), strict=True):
        assert np.array_equal(one, other)


def test_input_is_left_as_it_is() -> None:
    responses = [np.array([5, 3, 5], np.int32)]
    ngram_sets(responses)
    assert responses[0].tolist() == [5, 3, 5]


@property_test
@given(RESPONSES, st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 0.9, 1.0, 0.1234567890123456]), st.integers(1, 3))
def test_c2_04_threshold_is_exact(responses: list[list[int]], tau: float, ngram: int) -> None:
    limit = Fraction(str(tau))
    distances = [[distance(a, b, ngram) for b in responses] for a in responses]
    below = look_alikes(arrays(responses), tau=tau, ngram=ngram, boundary="keep")
    within = look_alikes(arrays(responses), tau=tau, ngram=ngram, boundary="prune")
    assert below.tolist() == [[theta < limit for theta in row] for row in distances]
    assert within.tolist() == [[theta <= limit for theta in row] for row in distances]


def test_c2_04_threshold_where_floats_go_wrong() -> None:
    pair = arrays([list(range(10)), list(range(9))])
    assert 1 - 9 / 10 < 0.1, "the distance is 1/10, and floats put it below"
    assert not look_alikes(pair, tau=0.1, ngram=1, boundary="keep")[0, 1]
    assert look_alikes(pair, tau=0.1, ngram=1, boundary="prune")[0, 1]


def test_c2_04_threshold_is_exact_beyond_64_bits() -> None:
    disjoint = arrays([list(range(465)), list(range(465, 930))])
    assert 930 * Fraction("0.9900000000000001").denominator > 2**63
    assert not look_alikes(disjoint, tau=0.9900000000000001, ngram=1, boundary="keep")[0, 1]


@property_test
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 9))
def test_c2_10_padding_never_enters_the_sets(responses: list[list[int]], pad: int, extra: int) -> None:
    width = max(map(len, responses)) + extra
    padded = np.full((len(responses), width), pad, np.int32)
    for row, tokens in zip(padded, responses, strict=True):
        row[: len(tokens)] = tokens
    views = [row[: len(tokens)] for row, tokens in zip(padded, responses, strict=True)]
    for one, other in zip(overlaps(ngram_sets(views)), overlaps(ngram_sets(arrays(responses))), strict=True):
        assert np.array_equal(one, other)


def test_c2_10_a_response_shorter_than_the_ngram_has_an_empty_set() -> None:
    short, other_short, long = [1, 2], [], [1, 2, 3]
    intersection, union = overlaps(ngram_sets(arrays([short, other_short, long]), 3))
    assert intersection.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert union.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 1]]
    similar = look_alikes(arrays([short, other_short, long]), tau=0.5, ngram=3, boundary="keep")
    assert similar[0, 1], "two empty sets count as equal"
    assert not similar[0, 2]


def test_ngrams_do_not_cross_from_one_response_to_the_next() -> None:
    intersection, _ = overlaps(ngram_sets(arrays([[1, 2], [3, 4], [2, 3]]), 2))
    assert intersection.tolist() == np.eye(3, dtype=int).tolist()


@property_test
@given(RESPONSES, st.integers(1, 3))
def test_c2_11_theta_is_symmetric_bounded_and_zero_on_the_diagonal(responses: list[list[int]], ngram: int) -> None:
    intersection, union = overlaps(ngram_sets(arrays(responses), ngram))
    assert np.array_equal(intersection, intersection.T)
    assert np.array_equal(union, union.T)
    assert (intersection >= 0).all()
    assert (intersection <= union).all()
    assert np.array_equal(intersection.diagonal(), union.diagonal())


def test_windows_longer_than_any_response_are_none() -> None:
    intersection, union = overlaps(ngram_sets(arrays([[1, 2, 3], []]), 2**31 - 1))
    assert not intersection.any() and not union.any()
