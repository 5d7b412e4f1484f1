from __future__ import annotations

import pytest

from fastrl_cli.rewards import prefilled, well_formed

GOOD = (
    r"<thinking>two sides</thinking>\boxed{5}",
    r"<think>two sides</think> The answer is \boxed{5}.",
    "\n <thinking>\n1 / 2 < 3\n</thinking>\n\n" + r"$\boxed{\frac{1}{2}}$" + "\n",
    r"< thinking >x</ thinking >\boxed{5}",
    r"<THINKING>x</THINKING>\boxed{5}",
    r"<thinking></thinking>\boxed {5}",
    r"<thinking>\boxed{3}</thinking>\boxed{5}",
)
BAD = (
    "",
    r"\boxed{5}",
    r"<thinking>two sides\boxed{5}",
    r"<thinking>\boxed{5}</thinking>",
    r"<thinking>x</thinking> 5",
    r"<thinking>x</thinking>\boxed{}",
    r"<thinking>x</thinking>\boxed{5",
    r"<thinking>x</think>\boxed{5}",
    r"so <thinking>x</thinking>\boxed{5}",
    r"x</thinking>\boxed{5}",
    r"<thought>x</thought>\boxed{5}",
)


@pytest.mark.parametrize("response", GOOD)
def test_well_formed(response: str):
    assert well_formed(response)


@pytest.mark.parametrize("response", BAD)
def test_badly_formed(response: str):
    assert not well_formed(response)


@pytest.mark.parametrize("prompt", ["<|im_start|>assistant\n<think>\n", "Assistant: <thinking>", "a < think > "])
def test_a_prefilled_opening_tag_counts(prompt: str):
    tag = prefilled(prompt)
    name = "thinking" if "thinking" in prompt else "think"
    response = rf"two sides</{name}> \boxed{{5}}"
    assert tag
    assert well_formed(response, tag)
    assert not well_formed(response)
    assert not well_formed(r"two sides \boxed{5}", tag)


@pytest.mark.parametrize("prompt", ["", "Use <thinking> </thinking> tags.\nassistant\n", "<thinking> first"])
def test_tags_elsewhere_in_the_prompt_are_no_prefill(prompt: str):
    assert prefilled(prompt) == ""
