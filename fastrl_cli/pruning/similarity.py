"""How alike two responses are: Jaccard similarity of their sets of unique n-grams (FastRL section 3.1). Counts
stay integers and the threshold a fraction, so that a distance of exactly tau is decided exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
Counts: TypeAlias = NDArray[np.int64]

_BLOCK = 1 << 15
"""N-grams multiplied at a time: bounds the dense part at n * 2^15 numbers whatever the length of the responses."""

_CODE_LIMIT = 1 << 46
"""Codes of n-grams stay below; with a response's index behind them they fit 63 bits."""


@dataclass(frozen=True, eq=False)
class NgramSets:
    """The sets of unique n-grams of n responses, as pairs (n-gram, response) in ascending order."""

    ngrams: Codes
    """(P,) codes of n-grams."""
    responses: Codes
    """(P,) indices of responses."""
    n: int


def ngram_sets(token_ids: Sequence[NDArray[np.int32]], ngram: int = 1) -> NgramSets:
    """Sets of n-grams of n responses (T_i,). A response shorter than `ngram` has an empty set.

    One sort of all tokens: time O(T log T), memory O(T) for T tokens together.
    """
    n = len(token_ids)
    codes, responses = _ngram_codes(token_ids, ngram)
    bits = max(n - 1, 1).bit_length()
    # Sorting int32 is twice as fast as int64; it holds a vocabulary of 2^18 with 4,096 responses. The codes are ours to
    # overwrite, which halves the time again: fresh buffers of this size cost page faults.
    fits = int(codes.max(initial=0)) >> (31 - bits) == 0
    keys: Codes = codes.astype(np.int32, copy=False) if fits else codes.astype(np.int64, copy=False)
    keys <<= bits
    keys |= responses
    keys.sort()
    keys = keys.take(np.flatnonzero(_is_first(keys)))
    return NgramSets(ngrams=keys >> bits, responses=keys & ((1 << bits) - 1), n=n)


def overlaps(sets: NgramSets) -> tuple[Counts, Counts]:
    """Sizes (n, n) of the intersection and of the union of every pair of sets."""
    sizes = np.bincount(sets.responses, minlength=sets.n)
    intersection = np.zeros((sets.n, sets.n), np.int64)
    first = _is_first(sets.ngrams)
    # Most n-grams occur in one response alone, and only the others can be in an intersection.
    shared = np.flatnonzero(~(first & np.append(first[1:], True)))
    rows, responses = np.cumsum(first.take(shared), dtype=np.int32) - 1, sets.responses.take(shared)
    height = int(rows[-1]) + 1 if len(rows) else 0
    for start in range(0, height, _BLOCK):
        low, high = np.searchsorted(rows, (start, start + _BLOCK))
        # float32 reaches BLAS and is exact: the sums are of at most 2^15 ones.
        member = np.zeros((min(_BLOCK, height - start), sets.n), np.float32)
        member.ravel()[(rows[low:high] - start) * sets.n + responses[low:high]] = 1
        intersection += (member.T @ member).astype(np.int64)
    np.fill_diagonal(intersection, sizes)
    return intersection, sizes[:, None] + sizes[None, :] - intersection


def look_alikes(
    token_ids: Sequence[NDArray[np.int32]], *, tau: float, ngram: int, boundary: Literal["keep", "prune"]
) -> NDArray[np.bool_]:
    """(n, n), True where the distance theta = 1 - |intersection| / |union| is below `tau` or, with boundary `prune`,
    equal to it. Two empty sets have distance 0. `tau` counts as the decimal number it is written as."""
    intersection, union = overlaps(ngram_sets(token_ids, ngram))
    threshold = Fraction(repr(tau))
    wide = threshold.denominator * int(union.max(initial=1)) > np.iinfo(np.int64).max
    dtype = object if wide else np.int64
    differing = (union - intersection).astype(dtype) * threshold.denominator
    limit = np.maximum(union, 1).astype(dtype) * threshold.numerator
    return np.asarray(differing < limit if boundary == "keep" else differing <= limit, np.bool_)


def _ngram_codes(token_ids: Sequence[NDArray[np.int32]], ngram: int) -> tuple[Codes, Codes]:
    """One number for every window of `ngram` tokens inside a response, equal where the windows are, and its response.
    The numbers are digits to the base of the vocabulary, renumbered densely where they would overflow."""
    n = len(token_ids)
    lengths = np.fromiter(map(len, token_ids), np.int64, n)
    responses = np.repeat(np.arange(n, dtype=np.int32), lengths)
    tokens = np.concatenate([np.empty(0, np.int32), *token_ids])
    if ngram == 1:
        return tokens, responses
    base = int(tokens.max(initial=0)) + 1
    codes, bound = tokens.astype(np.int64), base
    for shift in range(1, min(ngram, len(tokens) + 1)):
        if bound * base >= _CODE_LIMIT:
            values, codes = np.unique(codes, return_inverse=True)
            bound = len(values)
        codes = codes[:-1] * base + tokens[shift:]
        bound *= base
    starts = responses[: len(codes)]
    inside = starts == responses[len(responses) - len(codes) :]
    return codes[inside], starts[inside]


def _is_first(ascending: Codes) -> NDArray[np.bool_]:
    """(P,), True at the first of each run of equal values."""
    first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return first
