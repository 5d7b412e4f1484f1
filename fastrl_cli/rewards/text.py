"""One spelling for the many ways of writing an answer: LaTeX, Unicode and plain text become the same LaTeX-like string.
Nothing here decides a value, and the text that is graded is never changed, only copies of its extracted answer."""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 2000
"""Longer answers are not graded: no answer of a data set comes near it."""
MAX_DEPTH = 40
"""Deepest nesting of brackets that is graded."""

_SYMBOLS = {
    **dict.fromkeys("−–—‐‑﹣", "-"),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("º˚", "°"),
    **dict.fromkeys("’′`´‘", "'"),
    **dict.fromkeys("”″“", '"'),
    "×": r"\times ",
    "✕": r"\times ",
    "÷": "/",
    "∕": "/",
    "⁄": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "⩽": r"\le ",
    "≥": r"\ge ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "±": r"\pm ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∠": r"\angle ",
    "△": r"\triangle ",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "²": "^{2}",
    "³": "^{3}",
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "，": ",",
    "、": ",",
    "；": ";",
    "。": ".",
    "％": "%",
}
_TRANSLATION = str.maketrans(_SYMBOLS)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:SQRT)(?![A-Za-z])", r"\\sqrt"),
        (r"\\(?:[dtc]frac|FRAC)(?![A-Za-z])", r"\\frac"),
        (r"\\PI(?![A-Za-z])", r"\\pi"),
        (r"\\!\s*|\\displaystyle|\\limits", ""),
        (r"\{\s*,\s*\}", ","),
        (r"\\(?:[,;:> ]|quad|qquad|thinspace)(?![A-Za-z])|~", " "),
        (r"\\[()\[\]]", " "),
        (r"\\\$", ""),
        (r"\$", " "),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?=\s*(?:[()\[\]|.<>/]|\\[{}|]|\\[lr]))\s*\.?", ""),
        (r"\\lbrace", r"\\{"),
        (r"\\rbrace", r"\\}"),
        (r"\\lbrack", "["),
        (r"\\rbrack", "]"),
        (r"\\lvert|\\rvert|\\vert", "|"),
        (r"\\(?:math(?:rm|bf|it|sf|up)|text(?:bf|rm|it|normal|sf)|mbox|hbox|operatorname)\s*(?=\{)", r"\\text"),
        (r"\\(?:rm|bf|it)\s+(?=[A-Za-z])", ""),
        (r"\\text\s*\{\s*\}", ""),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])|\\degree(?![A-Za-z])|\\textdegree(?![A-Za-z])", "°"),
        (r"\\%", "%"),
        (r"\\text\{\s*%\s*\}", "%"),
        (r"(?:\\text\{\s*)?(?<![A-Za-z])(?:[Pp]ercentage|[Pp]ercent|[Pp]ct)(?![A-Za-z])(?:\s*\})?", "%"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\leq(?:slant)?(?![A-Za-z])|<=", r"\\le "),
        (r"\\geq(?:slant)?(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\*\*", "^"),
        (r"\s+", " "),
    )
)
_DOUBLE_BACKSLASH = re.compile(r"\\\\(?=[A-Za-z])")
_MARKDOWN = re.compile(r"^(\*\*|__|\*|_)(.+)\1$", re.DOTALL)


def refusal(text: str) -> str | None:
    """Why a text is not graded at all, or None. Such a text equals nothing, itself included."""
    if len(text) > MAX_LENGTH:
        return f"longer than {MAX_LENGTH} characters"
    if _CONTROL.search(text):
        return "control characters or unpaired surrogates"
    if not text.strip():
        return "empty"
    depth = deepest = 0
    for character in text:
        depth += (character in "{([") - (character in "})]")
        deepest = max(deepest, depth)
    return f"brackets nested deeper than {MAX_DEPTH}" if deepest > MAX_DEPTH else None


def clean(text: str) -> str:
    """One spelling of a bare answer: Unicode signs as LaTeX commands, every text command as `\\text`, degrees as `°`,
    no math delimiters, no sizing commands, single blanks."""
    text = "".join(unicodedata.normalize("NFKC", c) if "\uff00" <= c <= "\uffef" else c for c in text)
    text = text.strip()
    marked = _MARKDOWN.match(text)
    if marked:
        text = marked[2]
    # Data written without escaping its backslashes holds a form feed in place of `\\f`.
    text = text.replace("\x0c", "\\f").translate(_TRANSLATION)
    if r"\begin" not in text:
        text = _DOUBLE_BACKSLASH.sub(r"\\", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return re.sub(r"(?<=[^\W\d_])!+$", "", text.strip().rstrip(".,;:")).strip()


def plain(text: str) -> str:
    """The words of a cleaned text, `\\text{}` unwrapped, without case: what two text answers are compared by."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    return " ".join(text.replace("{", " ").replace("}", " ").casefold().split()).strip(" .,;:!\"'")


def balanced(text: str) -> bool:
    """Every brace closes, and none closes that was not open. Escaped braces are ignored."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def split_top(text: str, separators: re.Pattern[str]) -> list[str]:
    """Parts of a text between separators that stand outside every bracket."""
    parts, start, depth, position = [], 0, 0, 0
    while position < len(text):
        character = text[position]
        depth += (character in "{([") - (character in "})]")
        found = separators.match(text, position) if depth == 0 else None
        if found and found.end() > position:
            parts.append(text[start:position])
            start = position = found.end()
            continue
        position += 1
    return [*parts, text[start:]]
