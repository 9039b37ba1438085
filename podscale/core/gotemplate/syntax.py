"""Tokens of a template: text between actions, and the words inside them."""

import re
from collections.abc import Iterator

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateSyntaxError

_SPACE = " \t\r\n"
_MOST_SHOWN = 40  # characters of an action in a message
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)
    |(?P<number>[+-]?[0-9][\w.+-]*|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<variable>\$\w*)
    |(?P<field>\.\w*)
    |(?P<word>[^\W\d]\w*)
    |(?P<symbol>:=|[=|(),])""",
    re.VERBOSE,
)


class Token(Struct, frozen=True):
    """One token. ``kind`` is ``text``, ``left``, ``right``, ``space``, ``word``, ``field``,
    ``variable``, ``number``, ``string``, ``symbol`` or ``end``."""

    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        """Return the token as messages show it."""
        if self.kind == "end":
            return "EOF"
        return quote(self.text[:10]) + ("..." if len(self.text) > 10 else "")


def tokens(text: str, left: str, right: str, name: str) -> Iterator[Token]:
    """Yield the tokens of ``text``, an ``end`` token last; raises ``TemplateSyntaxError``."""
    opening = re.compile(f"{re.escape(left)}(?P<trims>-(?=[{_SPACE}]))?")
    closing = re.compile(f"(?P<trims>[{_SPACE}]+-)?{re.escape(right)}")
    at = 0

    def line(place: int) -> int:
        return text.count("\n", 0, place) + 1

    def refused(place: int, reason: str) -> TemplateSyntaxError:
        action, *others = text[place:].split("\n", 1)
        shown = action if len(action) <= _MOST_SHOWN and not others else f"{action[:_MOST_SHOWN]}…"
        opened = text.count(left, 0, place)
        return TemplateSyntaxError(name, line(at), reason, shown, left, opened)

    def after(closed: re.Match[str]) -> int:
        if not closed["trims"]:
            return closed.end()
        rest = text[closed.end() :]
        return len(text) - len(rest.lstrip(_SPACE))

    while found := opening.search(text, at):
        before = text[at : found.start()]
        if found["trims"]:
            before = before.rstrip(_SPACE)
        if before:
            yield Token("text", before, line(at))
        at = found.end()
        comment = re.compile(rf"[{_SPACE}]/\*" if found["trims"] else r"/\*").match(text, at)
        if comment:
            end = text.find("*/", comment.end())
            if end < 0:
                raise refused(found.start(), "unclosed comment")
            closed = closing.match(text, end + 2)
            if not closed:
                raise refused(found.start(), "comment ends before closing delimiter")
            at = after(closed)
            continue
        yield Token("left", left, line(found.start()))
        while not (closed := closing.match(text, at)):
            token = _TOKEN.match(text, at)
            if token is None:
                met = text[at : at + 1]
                reason = f"unexpected {quote(met)} in action" if met else "unclosed action"
                raise refused(found.start(), reason)
            yield Token(token.lastgroup or "", token[0], line(at))
            at = token.end()
        yield Token("right", right, line(at))
        at = after(closed)
    if at < len(text):
        yield Token("text", text[at:], line(at))
    yield Token("end", "", line(len(text)))
