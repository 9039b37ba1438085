"""Integers as Go reads them: ``strconv.ParseInt`` with base 10 and 64 bits."""

import re

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 19  # of 64 bits; Python reads no number of thousands of them


def problem(text: str) -> str:
    """Return why ``text`` is refused, in Go's words; "": it is an int64."""
    if not _INTEGER.fullmatch(text):
        return "invalid syntax"
    if len(text.lstrip("+-0")) > _MOST_DIGITS or not -(2**63) <= int(text) < 2**63:
        return "value out of range"
    return ""
