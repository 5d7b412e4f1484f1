"""The format of a response: reasoning in tags, then a boxed answer. The check reads the text and never changes it."""

from __future__ import annotations

import re

from fastrl_cli.rewards.extract import boxed_groups

_OPEN = re.compile(r"\s*<\s*((?i:think(?:ing)?))\s*>")
_TRAILING_OPEN = re.compile(r"<\s*think(?:ing)?\s*>\s*\Z", re.IGNORECASE)


def prefilled(prompt: str) -> str:
    """The opening tag with which a prompt's text ends (some chat templates write it for the model), else ``. It is what
    `well_formed` takes as `prefill`."""
    found = _TRAILING_OPEN.search(prompt)
    return found[0] if found else ""


def well_formed(response: str, prefill: str = "") -> bool:
    """`<thinking>` (or `<think>`), anything, the same tag closed, anything, a balanced non-empty `\\boxed{}`, anything;
    blanks are free around and inside the tags. `prefill` is the opening tag that the prompt holds."""
    text = prefill + response
    opening = _OPEN.match(text)
    if not opening:
        return False
    closing = re.compile(rf"<\s*/\s*(?i:{opening[1].lower()})\s*>").search(text, opening.end())
    return closing is not None and any(group.content.strip() for group in boxed_groups(text[closing.end() :]))
