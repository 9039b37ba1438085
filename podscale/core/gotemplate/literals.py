"""Go's literals inside templates: interpreted and raw texts, characters, numbers."""

import re

from podscale.core.gotemplate.values import to_text

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.?))",
    re.DOTALL,
)
_NAMED = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))
_OCTAL = re.compile(r"[+-]?0[0-7_]*")
_INTEGER = re.compile(
    r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO](_?[0-7])+|0(_?[0-7])*|[1-9](_?[0-9])*)"
)


class LiteralProblem(ValueError):
    """The literal is not one; the message is upstream's."""


def unquote(literal: str) -> str:
    """Return the text of ``"…"`` or `` `…` ``."""
    if literal[0] == "`":
        return literal[1:-1].replace("\r", "")
    return _unescape(literal[1:-1], "'")


def character(literal: str) -> int:
    """Return the code of ``'…'``: Go's rune, an integer."""
    text = _unescape(literal[1:-1], '"')
    if len(text) != 1:
        raise LiteralProblem(f"malformed character constant: {literal}")
    code = ord(text)
    return code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code


def number(literal: str) -> int | float:
    """Return the int or float64 that a constant becomes as an argument of a function."""
    if literal.endswith("i") and not literal.lower().startswith("0x"):
        raise LiteralProblem(f"complex numbers are not supported: {literal}")
    if _INTEGER.fullmatch(literal):
        base = 8 if _OCTAL.fullmatch(literal) else 0
        value = int(literal.replace("_", ""), base)
        if not -(2**63) <= value < 2**63:
            raise LiteralProblem(f"integer overflow: {literal}")
        return value
    try:
        fraction = float.fromhex(literal) if "x" in literal.lower() else float(literal)
    except (ValueError, OverflowError):
        raise LiteralProblem(f"illegal number syntax: {literal}") from None
    if not any(mark in literal for mark in ".eEpP"):
        raise LiteralProblem(f"integer overflow: {literal}")
    return fraction


def _unescape(body: str, foreign_quote: str) -> str:
    def replace(found: re.Match[str]) -> str:
        named, byte, short, long, octal, other = found.groups()
        if named is not None and named != foreign_quote:
            return _NAMED[named]
        code = int(byte or short or long or "0", 16)
        if octal is not None:
            code = int(octal, 8)
        if other is not None or named or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise LiteralProblem("invalid syntax")
        if byte is None and octal is None:
            return chr(code)
        if code > 255:
            raise LiteralProblem("invalid syntax")
        return chr(code) if code < 128 else chr(0xDC00 + code)

    text = _ESCAPE.sub(replace, body)
    # Bytes written one by one may form characters.
    return to_text(text.encode(errors="surrogateescape"))
