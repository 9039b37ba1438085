"""Go's ``%q``: how matchers, templates and Kubernetes' messages write a text."""

import unicodedata

_SHORT = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


def quote(text: str) -> str:
    """Return ``text`` between double quotes as Go's ``strconv.Quote``.

    Letters, marks, numbers, punctuation and symbols stay, and of the spaces only the
    ASCII one. A byte that was not UTF-8 (``surrogateescape``) is written ``\\x80``.
    """
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if (short := _SHORT.get(character)) is not None:
        return short
    if character == " " or unicodedata.category(character)[0] in "LMNPS":
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
