"""Words and numbers of protocols, which know ASCII only.

``str.lower`` folds all of Unicode: it makes the Kelvin sign (U+212A) a ``k``, and "chunked" written
with it would be "chunked" for us and an unknown word for everybody else. ``int`` reads the digits
of every script, underscores and blanks.
"""

_FOLDED = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_MOST_DIGITS = 18  # what surely fits 64 bits


def ascii_lower(text: str) -> str:
    """Return ``text`` with A to Z in lower case and everything else as it is."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def whole_number(text: str) -> int | None:
    """Return the number that ``text`` is: digits 0 to 9, 18 at most; None: it is not one."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def listed_words(value: str) -> list[str]:
    """Return the words of a header that lists them with commas, in lower case."""
    return [word.strip(" \t") for word in ascii_lower(value).split(",")]
