"""Finding the answer in a response. Every rule has a name, reported with the grade; none takes a bare last number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Mode = Literal["strict", "lenient"]


@dataclass(frozen=True)
class Extraction:
    """What a rule found."""

    text: str | None
    rule: str
    """`boxed`, `boxed_list`, `answer_tag` (strict); `answer_phrase`, `last_math`, `last_relation` (lenient only);
    `none`."""


NOTHING = Extraction(None, "none")


@dataclass(frozen=True)
class Boxed:
    """A balanced `\\boxed{...}`: its content and where it stands in the text."""

    content: str
    start: int
    end: int


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?=\s\S))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# Case is ignored inside groups alone: the search for the literal `<` before them stays fast.
_THINK_END = re.compile(r"<\s*/\s*(?i:think(?:ing)?)\s*>")
_ANSWER_TAG = re.compile(r"<\s*(?i:answer)\s*>((?:(?!<\s*(?i:answer)\s*>).)*?)<\s*/\s*(?i:answer)\s*>", re.DOTALL)
_CONNECTIVE = re.compile(
    r"(?:,|;|and|or|&|for|part|parts|\(?[a-z]\)|\(?[ivx]+\)|respectively|also|the|other|is|solutions?|values?)",
    re.IGNORECASE,
)
_GLUE = re.compile(
    r"\\(?:quad|qquad|text|mathrm|textbf|[()\[\],;:! ])|[$~{}]|\\\\"
    r"|[A-Za-z](?:_\{?\w+\}?)?(?:\([a-z]\))?\s*(?:=|\\in)\s*$"
)
_PHRASE = re.compile(
    r"(?:(?:final\s+answer|correct\s+answer|answer)\s*(?:\*\*)?\s*(?:(?:is|are|should\s+be|would\s+be)\s*:?|[:：])"
    r"|(?:final\s+)?answer[^.\n]{0,80}?\bis\s*:?|答案(?:是|为)?\s*[:：]?)"
    r"\s*(?:\*\*)?\s*(?P<answer>[^\n]+)",
    re.IGNORECASE,
)
_DISPLAY = re.compile(
    r"\$\$(?P<a>.+?)\$\$|(?<!\\)\\\[(?P<b>.+?)(?<!\\)\\\]|(?<!\\)\\\((?P<c>.+?)(?<!\\)\\\)"
    r"|(?<![\\$])\$(?!\$)(?P<d>(?:\\.|[^$\\\n])+?)\$",
    re.DOTALL,
)
_RELATION = re.compile(
    r"(?<![\w\\])(?P<relation>[A-Za-z](?:_\{?\w+\}?)?\s*(?:=|<|>|≤|≥|<=|>=|\\[lg]e)\s*[^\s,;][^\n,;]*)"
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|(?<=\S)\s+\(")
_LAST_IS = re.compile(r".*\b(?:is|are|equals)\s*:?\s+(\S.*)$")
_UNIT_WORD = re.compile(r"\s*[A-Za-z°%]+(?:\^\{?\d\}?|[²³])?(?=\s*[.,;]?\s*$)")
_JOIN_LIMIT = 40


def boxed_groups(text: str) -> list[Boxed]:
    """Every balanced `\\boxed{}` or `\\fbox{}` of a text that is not inside another, in order."""
    groups: list[Boxed] = []
    for opening in _BOX.finditer(text):
        if groups and opening.start() < groups[-1].end:
            continue
        if not opening[0].endswith("{"):
            word = re.compile(r"\s+(\S+)").match(text, opening.end())
            if word:
                groups.append(Boxed(word[1].strip("$.,"), opening.start(), word.end()))
            continue
        end = _closing_brace(text, opening.end())
        if end is not None:
            groups.append(Boxed(text[opening.end() : end], opening.start(), end + 1))
    return groups


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None


def _joins(between: str) -> bool:
    """Whether the text between two boxes makes them one list: punctuation and short connectives, and nothing else."""
    if len(between) > _JOIN_LIMIT + between.count("\\") * 6:
        return False
    rest = _GLUE.sub(" ", between.strip())
    words = _CONNECTIVE.sub(" ", rest)
    connected = bool(_CONNECTIVE.search(rest))
    return connected and not words.strip(" .:\n\t")


def _boxed(text: str) -> Extraction:
    groups = [group for group in boxed_groups(text) if group.content.strip()]
    if not groups:
        return NOTHING
    joined = [groups[-1]]
    for group in reversed(groups[:-1]):
        if not _joins(text[group.end : joined[0].start]):
            break
        joined.insert(0, group)
    contents = list(dict.fromkeys(group.content.strip() for group in joined))
    return Extraction(", ".join(contents), "boxed" if len(contents) == 1 else "boxed_list")


def _answer_tag(text: str) -> Extraction:
    found = [content.strip() for content in _ANSWER_TAG.findall(text) if content.strip()]
    return Extraction(found[-1], "answer_tag") if found else NOTHING


def _phrase(text: str) -> Extraction:
    """The text after the last "the answer is" or "Answer:"."""
    found = list(_PHRASE.finditer(text))
    if not found:
        return NOTHING
    answer = found[-1]["answer"].strip()
    inner = _LAST_IS.match(answer)
    answer = inner[1] if inner else answer
    groups = math_groups(answer)
    math = _DISPLAY.search(answer)
    if math and groups and (math.start() == 0 or len(answer[: math.start()].split()) > 1):
        unit = _UNIT_WORD.match(answer, math.end())
        answer = groups[0] + (unit[0] if unit and len(groups) == 1 else "")
    else:
        answer = _SENTENCE_END.split(answer)[0]
    answer = answer.strip().strip("*").strip()
    return Extraction(answer, "answer_phrase") if answer else NOTHING


def math_groups(text: str) -> list[str]:
    """Math between `$`, `\\(`, `\\[`; groups joined by a connective alone ("$1$ or $2$") make one list."""
    groups: list[tuple[str, int]] = []
    for found in _DISPLAY.finditer(text):
        content = next(value for value in found.groupdict().values() if value is not None).strip()
        between = text[groups[-1][1] : found.start()] if groups else ""
        if groups and len(between) <= 12 and re.fullmatch(r"\s*(?:,|and|or|, and|, or)\s*", between):
            groups[-1] = (f"{groups[-1][0].rstrip(',')}, {content}", found.end())
        else:
            groups.append((content, found.end()))
    return [content for content, _ in groups if content]


def _last_math(text: str) -> Extraction:
    groups = math_groups(text)
    return Extraction(groups[-1], "last_math") if groups else NOTHING


def _last_relation(text: str) -> Extraction:
    found = [match["relation"] for match in _RELATION.finditer(text)]
    if not found:
        return NOTHING
    return Extraction(_SENTENCE_END.split(found[-1])[0].strip().rstrip("."), "last_relation")


def extract(response: str, mode: Mode) -> Extraction:
    """The answer of a response. What follows the reasoning is searched before the whole text, so that a box inside the
    reasoning does not hide the answer behind it. `strict` stops at boxes and `<answer>`."""
    closings = list(_THINK_END.finditer(response))
    tail = response[closings[-1].end() :] if closings else response
    rules = [_boxed, _answer_tag]
    if mode == "lenient":
        rules += [_phrase, _last_math, _last_relation]
    for text in (tail, response) if closings else (response,):
        for rule in rules:
            found = rule(text)
            if found.text:
                return found
    return NOTHING
