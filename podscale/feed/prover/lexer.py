"""What a query's text is made of, and how much of it a parser is given. Pure.

Reads as Prometheus reads: three kinds of strings, of which only a raw one goes over a line's
end, escapes, and comments. One pass over the text, before anything parses it; what the library
does not read yet is written in older syntax.
"""

import re
from collections.abc import Callable, Iterator

# The library recurses on the native stack (`a+a+a…` of 5,000 terms ends the process), and copies
# what is below each node: memory grows with the operators times the text's length.
MAX_OPERATORS = 500
MAX_NESTING = 100
_MOST_COPIED = 32 * 1024 * 1024
# A raw string that ends in a backslash is one to Prometheus alone, not to the library.
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]++|\\[^\n])*+"|'(?:[^'\\\n]++|\\[^\n])*+'|`(?:[^`\\]++|\\[^`])*+`)
    |(?P<quote>["'`])
    |\#[^\r\n]*+
    |(?P<opens>[(\[{])
    |(?P<closes>[)\]}])
    |(?P<negative>@(?:\s|\#[^\r\n]*+)*+-)
    |(?P<operator>[=!<>]=|[=!]~|[-+*/%^<>=!]|\b(?i:and|or|unless|atan2)\b)""",
    re.VERBOSE,
)
# Numbers may have separators, `1_000`, and durations be calculated, `[5m*2]`, `offset (1h/2)`.
_RECENT_SYNTAX = re.compile(
    r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|`[^`]*+`|\#[^\r\n]*+
    |\[(?P<range>[^\[\]"'`#]*+)\]
    |\b(?i:offset)\s*+(?P<offset>[-+]?\s*+\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\))
    |(?<![\w:.])(?P<number>0[xX]\w++|[0-9.][0-9_.]*+(?:[eE][-+]?[0-9_]++)?(?!\w))""",
    re.VERBOSE,
)
_SEPARATOR = re.compile(r"(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])")
_OPERATOR = re.compile(r"[-+*/%^(]")


class NotPromql(ValueError):
    """The text does not parse, or holds something that our tree cannot say."""


class PromqlTooLarge(NotPromql):
    """The text has more operators, or nests deeper, than the parser is given."""


def tokens(text: str) -> Iterator["re.Match[str]"]:
    """Yield strings, brackets, operators and comments: ``lastgroup`` says which, None is a comment.

    Raises ``NotPromql`` where a string does not end.
    """
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "quote":
            raise NotPromql(f"the string at character {token.start() + 1} does not end")
        yield token


def check(text: str) -> None:
    """Raise ``NotPromql`` for a text that the library must not be given."""
    operators = depth = 0
    for token in tokens(text):
        match token.lastgroup:
            case "negative":
                raise NotPromql("a negative @ time")  # the library panics
            case "operator":
                operators += 1
            case "opens":
                operators += token[0] != "{"
                depth += 1
            case "closes":
                depth -= 1
        if depth > MAX_NESTING:
            raise PromqlTooLarge(f"brackets nest deeper than {MAX_NESTING} levels")
        if operators > MAX_OPERATORS:
            raise PromqlTooLarge(f"more than {MAX_OPERATORS} operators and brackets")
    if operators * len(text) > _MOST_COPIED:
        raise PromqlTooLarge(f"{operators} operators and brackets in {len(text)} characters")


def duration_arithmetic(text: str) -> str:
    """Return the first range or offset that is arithmetic, as it is written; "": there is none."""
    found = _RECENT_SYNTAX.finditer(text)
    return next((m[0] for m in found if _OPERATOR.search(m["offset"] or m["range"] or "")), "")


def in_older_syntax(text: str, duration: Callable[[str], str]) -> str:
    """Return the text without separators; ``duration`` writes what arithmetic comes to."""

    def older(found: "re.Match[str]") -> str:
        if found["number"]:
            return _SEPARATOR.sub("", found[0])
        if offset := found["offset"]:
            return f"offset {duration(_RECENT_SYNTAX.sub(older, offset))}"
        parts = (_RECENT_SYNTAX.sub(older, each) for each in (found["range"] or "").split(":"))
        range_ = ":".join(duration(p) if _OPERATOR.search(p) else p for p in parts)
        return f"[{range_}]" if range_ else found[0]

    return _RECENT_SYNTAX.sub(older, text)
