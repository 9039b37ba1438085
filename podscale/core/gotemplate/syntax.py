"""Tokens of a template: text between actions, and the words inside them."""

import re
from collections.abc import Iterator

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateSyntaxError

KEYWORDS = frozenset(
    {
        *("block", "break", "continue", "define", "else", "end", "if"),
        *("nil", "range", "template", "with"),
    }
)
_SPACE = " \t\r\n"
_ENDS_WORD = ".,|:)("
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*|0[bB][01_]*|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_CHARACTER = re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")


class Token(Struct, frozen=True):
    """One token. ``kind`` is ``text``, ``left``, ``right``, ``space``, ``word``, ``field``,
    ``variable``, ``number``, ``string``, ``character``, ``end`` or the symbol itself."""

    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        """Return the token as messages show it."""
        if self.kind == "end":
            return "EOF"
        if self.text in KEYWORDS:
            return f"<{self.text}>"
        return quote(self.text if len(self.text) <= 10 else self.text[:10]) + (
            "..." if len(self.text) > 10 else ""
        )


def tokens(text: str, left: str, right: str, name: str) -> Iterator[Token]:
    """Yield the tokens of ``text``, an ``end`` token last; raises ``TemplateSyntaxError``."""
    return _Lexer(text, left, right, name).tokens()


class _Lexer:
    def __init__(self, text: str, left: str, right: str, name: str) -> None:
        self._text = text
        self._left = left
        self._right = right
        self._name = name
        self._at = 0

    def tokens(self) -> Iterator[Token]:
        while True:
            start = self._at
            opening = self._text.find(self._left, start)
            if opening < 0:
                if start < len(self._text):
                    yield self._token("text", start, len(self._text))
                yield self._token("end", len(self._text), len(self._text))
                return
            inside = opening + len(self._left)
            trims = self._text[inside : inside + 1] == "-" and self._is_space(inside + 1)
            before = self._text[start:opening]
            kept = len(before.rstrip(_SPACE)) if trims else len(before)
            if kept:
                yield self._token("text", start, start + kept)
            self._at = inside + 2 if trims else inside
            if self._text.startswith("/*", self._at):
                self._skip_comment()
                continue
            yield self._token("left", opening, inside)
            yield from self._action()

    def _skip_comment(self) -> None:
        end = self._text.find("*/", self._at + 2)
        if end < 0:
            raise self._error("unclosed comment")
        self._at = end + 2
        if not self._closing():
            raise self._error("comment ends before closing delimiter")
        self._close()

    def _action(self) -> Iterator[Token]:
        depth = 0
        while not self._closing():
            if self._at >= len(self._text):
                raise self._error("unclosed action")
            token = self._inside()
            depth += {"(": 1, ")": -1}.get(token.kind, 0)
            if depth < 0:
                raise self._error("unexpected right paren")
            yield token
        if depth:
            raise self._error("unclosed left paren")
        start = self._at
        self._close()
        yield Token("right", self._right, self._line(start))

    def _closing(self) -> bool:
        at = self._at
        if self._is_space(at) and self._text.startswith("-" + self._right, at + 1):
            return True
        return self._text.startswith(self._right, at)

    def _close(self) -> None:
        if self._is_space(self._at):
            self._at += 2 + len(self._right)
            rest = self._text[self._at :]
            self._at += len(rest) - len(rest.lstrip(_SPACE))
        else:
            self._at += len(self._right)

    def _inside(self) -> Token:
        start = self._at
        character = self._text[start]
        if character in _SPACE:
            return self._spaces()
        if character == ":":
            if self._text[start : start + 2] != ":=":
                raise self._error("expected :=")
            return self._take(":=", start, start + 2)
        if character == '"':
            return self._delimited("string", _STRING, "unterminated quoted string")
        if character == "'":
            return self._delimited("character", _CHARACTER, "unterminated character constant")
        if character == "`":
            end = self._text.find("`", start + 1)
            if end < 0:
                raise self._error("unterminated raw quoted string")
            return self._take("string", start, end + 1)
        if character == "$":
            return self._word("variable", start + 1)
        if character == "." and not "0" <= self._text[start + 1 : start + 2] <= "9":
            return self._word("field", start + 1)
        if character in "+-." or "0" <= character <= "9":
            return self._number()
        if _is_letter(character):
            return self._word("word", start)
        if character in "=|(),":
            return self._take(character, start, start + 1)
        if character.isascii() and character.isprintable():
            return self._take("symbol", start, start + 1)
        raise self._error(f"unrecognized character in action: U+{ord(character):04X}")

    def _spaces(self) -> Token:
        start = self._at
        end = start
        while self._is_space(end):
            end += 1
        # The last space belongs to a trim marker that may follow it.
        if self._text.startswith("-" + self._right, end) and end - start > 1:
            end -= 1
        return self._take("space", start, end)

    def _word(self, kind: str, at: int) -> Token:
        start = self._at
        while at < len(self._text) and _is_letter(self._text[at]):
            at += 1
        ended = (
            at >= len(self._text)
            or self._text[at] in _SPACE + _ENDS_WORD
            or self._text.startswith(self._right, at)
        )
        if not ended:
            raise self._error(f"bad character U+{ord(self._text[at]):04X}")
        return self._take(kind, start, at)

    def _number(self) -> Token:
        found = _NUMBER.match(self._text, self._at)
        end = found.end() if found else self._at
        following = self._text[end : end + 1]
        if following and (_is_letter(following) or following in "+-"):
            raise self._error(f"bad number syntax: {quote(self._text[self._at : end + 1])}")
        return self._take("number", self._at, end)

    def _delimited(self, kind: str, pattern: re.Pattern[str], problem: str) -> Token:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._error(problem)
        return self._take(kind, self._at, found.end())

    def _take(self, kind: str, start: int, end: int) -> Token:
        self._at = end
        return self._token(kind, start, end)

    def _token(self, kind: str, start: int, end: int) -> Token:
        return Token(kind, self._text[start:end], self._line(start))

    def _is_space(self, at: int) -> bool:
        return at < len(self._text) and self._text[at] in _SPACE

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    def _error(self, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(self._name, self._line(self._at), reason)


def _is_letter(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()
