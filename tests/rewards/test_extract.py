from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl_cli.rewards import grade
from fastrl_cli.rewards.extract import extract

STRICT = (
    (r"so \boxed{5}.", "5", "boxed"),
    (r"\boxed{3} no, wait: \boxed{4}", "4", "boxed"),
    (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}", "boxed"),
    (r"$\boxed{28 percent}", "28 percent", "boxed"),
    (r"\boxed {7}", "7", "boxed"),
    (r"\boxed 7.", "7", "boxed"),
    (r"\fbox{7}", "7", "boxed"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}", "boxed"),
    (r"\boxed{7} and then \boxed{8", "7", "boxed"),
    (r"give the answer in \boxed{}. \boxed{7}. Done: \boxed{}", "7", "boxed"),
    (r"\boxed{1}, \boxed{2} and \boxed{3}", "1, 2, 3", "boxed_list"),
    (r"$\boxed{(3, 3)} \text{ for part (a) and } \boxed{(1, 1)}$", "(3, 3), (1, 1)", "boxed_list"),
    (r"\($y = \boxed{4} \) and \( z = \boxed{5} \)", "4, 5", "boxed_list"),
    (r"\boxed{1} no no no \boxed{2}", "2", "boxed"),
    (r"We get \boxed{9}. So the answer is \boxed{9}.", "9", "boxed"),
    ("<answer> 145° </answer>", "145°", "answer_tag"),
    ("<answer>1</answer> hm <answer>2</answer>", "2", "answer_tag"),
    ("< Answer >2</ answer >", "2", "answer_tag"),
    (r"<think>\boxed{3}</think><answer>4</answer>", "4", "answer_tag"),
    (r"<thinking>maybe \boxed{3}</thinking> \boxed{4}", "4", "boxed"),
    (r"<thinking>so \boxed{3}</thinking> and that is it", "3", "boxed"),
    (r"<answer>\boxed{6}</answer>", "6", "boxed"),
)

LENIENT_ONLY = (
    ("Thus the answer is 12.", "12", "answer_phrase"),
    ("Thus the answer is 12.5. Next", "12.5", "answer_phrase"),
    ("Answer: B", "B", "answer_phrase"),
    ("**Answer:** 42", "42", "answer_phrase"),
    ("The final answer is: $x=4$.", "x=4", "answer_phrase"),
    ("Final Answer: The largest $n$ is 34.", "34", "answer_phrase"),
    (r"We find $a=1$, hence $b=2$", "b=2", "last_math"),
    (r"the values $21$ or $11$", "21, 11", "last_math"),
    (r"so it is \[ \frac{1}{2} \]", r"\frac{1}{2}", "last_math"),
    ("then y = 3, so x = 7.", "x = 7", "last_relation"),
    ("145°", "145°", "whole"),
)

NOTHING = ("", "I count 3 squares and 4 circles", r"\boxed{", r"\boxed{}", "\\", "thinking </thinking>")


@pytest.mark.parametrize(("response", "answer", "rule"), STRICT)
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_boxes_and_tags(response: str, answer: str, rule: str, mode):
    found = extract(response, mode)
    assert (found.text, found.rule) == (answer, rule)


@pytest.mark.parametrize(("response", "answer", "rule"), LENIENT_ONLY)
def test_other_rules_are_for_evaluation_alone(response: str, answer: str, rule: str):
    lenient = grade(response, "no such answer")
    assert (lenient.extraction, lenient.rule) == (answer, rule)
    assert grade(response, answer, mode="strict") == grade("", answer, mode="strict")


@pytest.mark.parametrize("response", NOTHING)
def test_a_bare_last_number_is_never_an_answer(response: str):
    found = grade(response, "4")
    assert (found.extraction, found.rule, found.correct) == (None, "none", False)


@given(st.text(alphabet="\\boxed{}<>/answerthinkg $.=15 \n", max_size=80))
def test_any_text_has_an_extraction_that_stands_in_it(response: str):
    for mode in ("strict", "lenient"):
        found = extract(response, mode)
        assert (found.text is None) == (found.rule == "none")
        if found.rule == "boxed":
            assert found.text in response
