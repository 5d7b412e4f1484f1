"""Whether an answer is right: one grader for training and evaluation.

Exact comparison first (`answer`), in this process and within microseconds; math-verify in worker processes for what is
left."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from fastrl_cli.rewards import answer
from fastrl_cli.rewards.extract import NOTHING, Extraction, Mode, extract, math_groups
from fastrl_cli.rewards.pool import GradingPool, Verdict
from fastrl_cli.rewards.text import balanced, clean, plain, refusal

CACHE_SIZE = 65_536
DEFAULT_TIMEOUT_SECONDS = 1.5
GOLD_TIMEOUT_SECONDS = 60.0

_TOWER = re.compile(r"(?:\^[\s{(]*\d+\s*){2,}|\^[\s{(]*\d{5,}|!\s*!|\d{6,}\s*!")
_SHORT_NUMBER = re.compile(r"\s*[-+]?\d{1,15}(?:\.\d{1,5})?\s*", re.ASCII)
_WORD = re.compile(r"[A-Za-z]{2,}")
_CONNECTIVES = frozenset({"and", "or", "is", "the"})
_MARKED = re.compile(r"\\boxed|\\fbox|<\s*answer\s*>|####", re.IGNORECASE)
_EMPTY_WRAPPING = re.compile(r"<\s*/?\s*(?i:answer)\s*>|\\(?:boxed|fbox)\s*\{\s*\}")
_HASHES = re.compile(r"####\s*(\S[^\n]*)")
_PROSE = re.compile(r"^[^\\$]*[A-Za-z]{2,}[^\\$]*\s[^\\$]*$")


@dataclass(frozen=True)
class Grade:
    """The grade of a response."""

    correct: bool
    extraction: str | None
    """The answer that was graded, as it stands in the response. None: no rule found one."""
    rule: str
    """Rule of `extract` that found it."""
    error: str | None = None
    """`timeout`, `crash` or the grader's exception: the answer then counts as wrong."""


def bare(text: str) -> str:
    """The answer inside a short text that may wrap it (box, tag, `$`, "the answer is"): data sets and models do."""
    if _MARKED.search(text):
        hashes = _HASHES.findall(text)
        return hashes[-1] if hashes else extract(text, "strict").text or _EMPTY_WRAPPING.sub("", text)
    if answer.readings(text) and not re.search(r"answer", text, re.IGNORECASE):
        return text
    groups = math_groups(text)
    if groups and _prose_around(text, groups):
        found = extract(text, "lenient")
        return found.text or text
    if not groups and _PROSE.match(text) and re.search(r"answer", text, re.IGNORECASE):
        return extract(text, "lenient").text or text
    return text


def _prose_around(text: str, groups: list[str]) -> bool:
    outside = text
    for group in groups:
        outside = outside.replace(group, " ")
    outside = re.sub(r"\\[A-Za-z]+", " ", outside)
    words = [word for word in _WORD.findall(outside) if word.lower() not in _CONNECTIVES]
    return bool(words) or len(groups) > 1


class Grader:
    """Grades answers with a cache of verdicts and a pool of its own. Safe to use from several threads."""

    def __init__(self, workers: int | None = None, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self.pool = GradingPool(workers, timeout_seconds)
        self._cache: OrderedDict[tuple[str, str], Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def equal_many(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        """The verdicts of (prediction, gold) pairs of bare answers, in their order."""
        verdicts: dict[tuple[str, str], Verdict] = {}
        undecided: dict[tuple[str, str], tuple[str, str]] = {}
        for pair in dict.fromkeys(pairs):
            known = self._cached(pair)
            decided = known or _decide(*pair)
            if isinstance(decided, Verdict):
                verdicts[pair] = decided
            else:
                undecided[pair] = decided
        answers = self.pool.run([("equal", texts) for texts in undecided.values()])
        verdicts.update(zip(undecided, answers, strict=True))
        self._remember(verdicts)
        return [verdicts[pair] for pair in pairs]

    def is_equal(self, prediction: str, gold: str) -> bool:
        return self.equal_many([(prediction, gold)])[0].equal

    def grade_many(self, items: Sequence[tuple[str, str]], mode: Mode = "lenient") -> list[Grade]:
        """The grades of (response, gold) pairs, in their order."""
        found = [self._extract(response, mode) for response, _ in items]
        pairs = [(extraction.text or "", gold) for extraction, (_, gold) in zip(found, items, strict=True)]
        verdicts = self.equal_many(pairs)
        return [
            Grade(verdict.equal, extraction.text, extraction.rule, verdict.error)
            for extraction, verdict in zip(found, verdicts, strict=True)
        ]

    def gold_problems(self, golds: Sequence[str]) -> list[str | None]:
        """Why each gold answer cannot be graded, or None: such a row is left out of the data and never rewarded."""
        problems = {gold: _gold_problem(gold) for gold in golds}
        undecided = [gold for gold, problem in problems.items() if problem == _UNDECIDED]
        verdicts = self.pool.run([("parses", (bare(gold),)) for gold in undecided])
        for gold, verdict in zip(undecided, verdicts, strict=True):
            problems[gold] = None if verdict.equal else _problem(verdict)
        return [problems[gold] for gold in golds]

    def close(self) -> None:
        self.pool.close()

    @staticmethod
    def _extract(response: str, mode: Mode) -> Extraction:
        """A whole response that is a bare answer is one, in lenient mode."""
        found = extract(response, mode)
        if found is NOTHING and mode == "lenient" and not refusal(response) and answer.readings(response):
            return Extraction(response.strip(), "whole")
        return found

    def _cached(self, pair: tuple[str, str]) -> Verdict | None:
        with self._lock:
            verdict = self._cache.get(pair)
            if verdict is not None:
                self._cache.move_to_end(pair)
            return verdict

    def _remember(self, verdicts: dict[tuple[str, str], Verdict]) -> None:
        """Errors are not kept: a timeout on a busy machine must not stay."""
        with self._lock:
            self._cache.update((pair, verdict) for pair, verdict in verdicts.items() if verdict.error is None)
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)


def _decide(prediction: str, gold: str) -> Verdict | tuple[str, str]:
    """The verdict where exact comparison gives one, else the bare texts that a worker must compare."""
    if _SHORT_NUMBER.fullmatch(prediction) and _SHORT_NUMBER.fullmatch(gold):
        return Verdict(Fraction(prediction) == Fraction(gold))
    if refusal(prediction) or refusal(gold):
        return Verdict(False)
    left, right = bare(prediction), bare(gold)
    if refusal(left) or refusal(right):
        return Verdict(False)
    a, b = clean(left), clean(right)
    if a and a == b and balanced(a):
        return Verdict(True)
    decided = answer.compare(answer.readings(left), answer.readings(right))
    if decided is not None:
        return Verdict(decided)
    if not balanced(a) or not balanced(b) or _TOWER.search(a) or _TOWER.search(b) or "__" in a + b:
        return Verdict(False)
    if plain(a) and plain(a) == plain(b):
        return Verdict(True)
    return left, right


_UNDECIDED = "undecided"


def _gold_problem(gold: str) -> str | None:
    reason = refusal(gold) or refusal(bare(gold))
    if reason:
        return reason
    text = clean(bare(gold))
    if not balanced(text):
        return "unbalanced braces"
    if not any(character.isalnum() for character in text):
        return "no number, letter or word"
    if answer.readings(bare(gold)):
        return None
    if _TOWER.search(text):
        return "a power too large to evaluate"
    if re.fullmatch(r"[\w\s'-]+", plain(text)) and not re.search(r"\d|\\(?!text)|[_^]", text):
        return None
    return _UNDECIDED


def _problem(verdict: Verdict) -> str:
    return f"does not parse ({verdict.error})" if verdict.error else "does not parse as mathematics"


@cache
def _shared(timeout_seconds: float) -> Grader:
    """The graders behind the functions of this module."""
    return Grader(timeout_seconds=timeout_seconds)


def is_equal(prediction: str, gold: str) -> bool:
    """Whether two bare answers are equal. An answer that cannot be understood, or not in time, equals nothing."""
    return _shared(DEFAULT_TIMEOUT_SECONDS).is_equal(prediction, gold)


def grade(response: str, gold: str, mode: Mode = "lenient") -> Grade:
    """Find the answer of a whole response and compare it with the gold answer. `strict` (training) takes boxes and
    `<answer>` alone; `lenient` (evaluation) then tries "the answer is", the last math and the last relation."""
    return _shared(DEFAULT_TIMEOUT_SECONDS).grade_many([(response, gold)], mode)[0]


def gold_problem(gold: str) -> str | None:
    """Why a gold answer cannot be graded, or None."""
    return gold_problems([gold])[0]


def gold_problems(golds: Sequence[str]) -> list[str | None]:
    """`gold_problem` of many, at once. Patient: a busy machine must not take rows out of a data set."""
    return _shared(GOLD_TIMEOUT_SECONDS).gold_problems(golds)
