from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.rewards import Grader, gold_problem, grade, is_equal
from fastrl_cli.rewards.grader import CACHE_SIZE, Verdict
from tests.rewards.tables import DIFFERENT, EQUAL


def both_ways(pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [pair for a, b in pairs for pair in ((a, b), (b, a))]


def disagreements(grader: Grader, pairs: list[tuple[str, str]], expected: bool) -> list[tuple[str, str, Verdict]]:
    return [
        (*pair, verdict)
        for pair, verdict in zip(pairs, grader.equal_many(pairs), strict=True)
        if verdict.equal is not expected or verdict.error is not None
    ]


def test_the_table_is_large_enough():
    assert len(set(EQUAL)) + len(set(DIFFERENT)) >= 150


def test_equal_answers(grader):
    assert disagreements(grader, both_ways(EQUAL), True) == []


def test_different_answers(grader):
    assert disagreements(grader, both_ways(DIFFERENT), False) == []


def test_every_understood_answer_equals_itself(grader):
    answers = list(dict.fromkeys(text for pair in (*EQUAL, *DIFFERENT) for text in pair))
    understood = [a for a, problem in zip(answers, grader.gold_problems(answers), strict=True) if problem is None]
    assert len(understood) > 200
    assert disagreements(grader, [(a, a) for a in understood], True) == []


def test_shared_cases(grader, shared_data: Path):
    """At least 98 % of the clear cases, and not one wrong answer held right."""
    lines = (shared_data / "grading_cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if not case["ambiguous"]]
    assert len(cases) >= 245
    verdicts = []
    for case in cases:
        pair = (case["prediction"], case["gold"])
        if case["kind"] == "response":
            verdicts.append(grader.grade_many([pair])[0].correct)
        else:
            verdicts.append(grader.is_equal(*pair))
    agree = sum(verdict == case["equal"] for verdict, case in zip(verdicts, cases, strict=True))
    assert [case["id"] for verdict, case in zip(verdicts, cases, strict=True) if verdict and not case["equal"]] == []
    assert agree / len(cases) >= 0.98


def test_shared_responses_scored_by_hand(grader, shared_data: Path):
    """Published verdicts on raw responses; an option's text counts for its letter, as the benchmark scores."""
    path = shared_data / "mathvision_scored_outputs.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    agree = 0
    for row in rows:
        golds = [row["answer"]]
        if row["options"] and len(row["answer"]) == 1:
            golds.append(row["options"]["ABCDE".index(row["answer"])])
        correct = any(grade.correct for grade in grader.grade_many([(row["response"], gold) for gold in golds]))
        agree += correct == row["correct"]
    assert agree / len(rows) >= 0.95


class Value:
    """A drawn answer: its value, known without the grader, and the ways of writing it."""

    def __init__(self, rng: random.Random) -> None:
        self.rational = Fraction(rng.randint(1, 60), rng.choice([1, 1, 1, 2, 3, 4, 5, 7, 12]))
        self.root = rng.choice([1, 1, 2, 3, 5, 6, 7, 10, 13, 221])
        self.pi = rng.choice([0, 0, 0, 1])
        self.sign = rng.choice([1, 1, 1, -1])
        self.unit = rng.choice(["", "", "", "°", "cm", "m", "cm^2"])
        self.letter = ""

    @property
    def key(self) -> tuple[str, float, str]:
        scale, kind = {"cm": (0.01, "length"), "m": (1.0, "length")}.get(self.unit, (1.0, self.unit))
        value = self.sign * float(self.rational) * math.sqrt(self.root) * math.pi**self.pi * scale
        return kind, value, self.letter

    def mutated(self, rng: random.Random) -> Value:
        other = Value.__new__(Value)
        other.__dict__.update(self.__dict__)
        kind = rng.choice(["digit", "sign", "unit", "root", "pi", "inverse"])
        if kind == "digit":
            change = rng.choice([-10, -2, -1, 1, 2, 9, 10, 100])
            other.rational = Fraction(abs(self.rational.numerator + change), self.rational.denominator)
        elif kind == "sign":
            other.sign = -self.sign
        elif kind == "unit":
            other.unit = rng.choice(["cm", "m", "cm^2", "°"])
        elif kind == "root":
            other.root = rng.choice([1, 2, 3, 5, 6, 7, 10, 13, 221])
        elif kind == "pi":
            other.pi = 1 - self.pi
        else:
            other.rational = 1 / self.rational
        return other

    def render(self, rng: random.Random) -> str:
        n, d = self.rational.numerator, self.rational.denominator
        root = "" if self.root == 1 else rng.choice([r"\sqrt{%d}", r"\sqrt { %d }", "√{%d}", "√%d"]) % self.root
        pi = "" if not self.pi else rng.choice([r"\pi", "π"])
        factor = f"{root}{pi}"
        number = str(n)
        if n == 1 and factor and rng.random() < 0.5:
            number = ""
        style = rng.randrange(3)
        if d == 1:
            text = number + factor
        elif style == 0:
            text = rf"\frac{{{number}{factor}}}{{{d}}}"
        elif style == 1:
            text = rf"\dfrac {{ {n} }} {{ {d} }} {factor}".rstrip()
        else:
            text = f"{number}{factor}/{d}"
        if factor == "" and (100 * n) % d == 0 and rng.random() < 0.3:
            text = f"{n / d:.2f}".rstrip("0").rstrip(".")
        sign = "-" if self.sign < 0 else ""
        wrap = rng.choice(["{}", "${}$", "x={}", "{}.", " {} "]) if not self.unit else rng.choice(["{}", "${}$"])
        units = {"°": ["°", r"^\circ", " degrees"], "cm": ["cm", r"\text{ cm}", "厘米"], "m": ["m", " 米"]}
        unit = rng.choice(units.get(self.unit, [self.unit and " cm²", self.unit and r"\mathrm{~cm}^2"]))
        if text.endswith("pi") and unit[:1].isalpha():
            unit = f" {unit}"
        return wrap.format(sign + text + unit)


def differ(a: Value, b: Value) -> bool:
    (kind_a, x, _), (kind_b, y, _) = a.key, b.key
    if kind_a and kind_b and kind_a != kind_b:
        return True
    if not (kind_a and kind_b):
        # Without a unit on one side the bare numbers are compared.
        x = a.sign * float(a.rational) * math.sqrt(a.root) * math.pi**a.pi
        y = b.sign * float(b.rational) * math.sqrt(b.root) * math.pi**b.pi
    return abs(x - y) > 1e-6 * max(abs(x), abs(y))


def test_mutated_answers_are_never_equal(grader):
    rng = random.Random(20260)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 3000:
        gold = Value(rng)
        wrong = gold.mutated(rng)
        if differ(gold, wrong):
            pairs.append((wrong.render(rng), gold.render(rng)))
    assert disagreements(grader, pairs, False) == []


def test_two_ways_of_writing_are_equal(grader):
    rng = random.Random(7)
    values = [Value(rng) for _ in range(1500)]
    assert disagreements(grader, [(value.render(rng), value.render(rng)) for value in values], True) == []


MUTATED_EXPRESSIONS = [
    (template.format(a, b), template.format(a + da, b + db))
    for template in (
        r"{0}x^2+{1}",
        r"\sin({0}x)+{1}",
        r"y={0}x-{1}",
        r"({0},{1}]",
        r"x \le \frac{{{0}}}{{{1}}}",
        r"{0}^x+{1}i",
    )
    for a, b in ((2, 3), (5, 7), (11, 4))
    for da, db in ((1, 0), (0, 1), (2, 0), (0, 2))
]


def test_mutated_expressions_are_never_equal(grader):
    assert disagreements(grader, MUTATED_EXPRESSIONS, False) == []


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=400), st.fractions(max_denominator=400))
def test_rationals_are_compared_exactly(x: Fraction, y: Fraction):
    assert is_equal(str(x), rf"\frac{{{x.numerator}}}{{{x.denominator}}}")
    assert is_equal(str(x), str(y)) is (x == y)


@given(st.text(max_size=30), st.text(max_size=30))
def test_exact_comparison_is_symmetric(a: str, b: str):
    from fastrl_cli.rewards.grader import _decide

    there, back = _decide(a, b), _decide(b, a)
    assert isinstance(there, Verdict) == isinstance(back, Verdict)
    if isinstance(there, Verdict):
        assert there == back


HOSTILE = (
    "9^9^9^9",
    "9^{9^{9^{9}}}",
    "{" * 100_000,
    "}" * 100_000,
    "(" * 500 + "1" + ")" * 500,
    r"\sqrt{" * 300 + "5" + "}" * 300,
    r"\frac{1}{" * 300 + "5" + "}" * 300,
    "\ud800",
    "5\udfff",
    "5\x00",
    "\x00",
    "__import__('os').system('echo 5')",
    "().__class__.__bases__[0]",
    "1" * 100_000,
    "1000000!!",
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_hostile_text_equals_nothing_and_needs_no_worker(text: str):
    fresh = Grader(workers=1)
    assert [v.equal for v in fresh.equal_many([(text, "5"), ("5", text), (text, text + " 1")])] == [False] * 3
    assert fresh.grade_many([(rf"\boxed{{{text}}}", "5")])[0].correct is False
    assert fresh.pool.process_ids == []


VERDICT_TABLE = [*EQUAL[-28:], *DIFFERENT[-28:]]


def verdict_table(pairs: list[tuple[str, str]]) -> list[bool]:
    grader = Grader(workers=1, timeout_seconds=60.0)
    verdicts = [verdict.equal for verdict in grader.equal_many(pairs)]
    grader.close()
    return verdicts


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_same_verdicts_in_another_process(grader, method: str):
    here = [verdict.equal for verdict in grader.equal_many(VERDICT_TABLE)]
    with get_context(method).Pool(1) as processes:
        assert processes.apply(verdict_table, (VERDICT_TABLE,)) == here


def test_same_verdicts_in_threads():
    shared = Grader(workers=1, timeout_seconds=60.0)
    with ThreadPoolExecutor(4) as threads:
        tables = list(threads.map(lambda _: [v.equal for v in shared.equal_many(VERDICT_TABLE)], range(4)))
    shared.close()
    assert tables[0] == tables[1] == tables[2] == tables[3] == verdict_table(VERDICT_TABLE)


def test_a_forked_child_does_not_touch_its_parents_workers(grader):
    assert grader.is_equal("x^2-1", "(x-1)(x+1)")
    child = os.fork()
    if child == 0:
        os._exit(0 if grader.is_equal("x^2-4", "(x-2)(x+2)") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert grader.is_equal("x^2-9", "(x-3)(x+3)")


def test_importing_rewards_is_light():
    heavy = ("sympy", "math_verify", "torch", "vllm", "transformers", "datasets")
    code = f"import sys, fastrl_cli.rewards; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_verdicts_are_remembered_but_errors_are_not(monkeypatch):
    cached = Grader(workers=1)
    calls = []

    def run(tasks):
        calls.append(len(tasks))
        return [Verdict(False, "timeout") if "slow" in task[1][0] else Verdict(True) for task in tasks]

    monkeypatch.setattr(cached.pool, "run", run)
    pairs = [("2q+slow", "q"), ("2q+fast", "q"), ("2q+fast", "q")]
    assert [v.error for v in cached.equal_many(pairs)] == ["timeout", None, None]
    cached.equal_many(pairs)
    assert calls == [2, 1]
    assert CACHE_SIZE > 256 * 8


@pytest.mark.parametrize(
    "gold", ["145°", "<answer> 145° </answer>", r"2 \sqrt { 221 }", "B", "odd", "9米", "x^2-1", r"x \le 3", "$(1,2)$"]
)
def test_gradable_golds(grader, gold: str):
    assert grader.gold_problems([gold]) == [None]
    assert gold_problem("145°") is None


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("<answer></answer>", "empty"),
        ("?", "no number"),
        (r"\frac{1}{2", "unbalanced"),
        ("5\x00", "control"),
        ("x" * 3000, "longer"),
        ("9^9^9^9", "power"),
        (r"\frac{1}{", "unbalanced"),
        (r"3 + \times", "parse"),
        (r"\sqrt[{}]5 &", "parse"),
    ],
)
def test_golds_that_do_not_parse_say_why(grader, gold: str, reason: str):
    assert reason in (grader.gold_problems([gold])[0] or "")


def test_an_unparseable_gold_is_never_a_reward():
    for gold in ("", r"\frac{1}{2", r"3 + \times", "?"):
        for prediction in ("5", "", "7 x"):
            assert not grade(rf"<thinking>a</thinking>\boxed{{{prediction}}}", gold, mode="strict").correct
