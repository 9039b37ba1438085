"""What libraries say of bad input, in words for whoever wrote it.

Their messages name types of Python and Go, codecs and numbers of errors. Pure.
"""

import re

_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `([^`]*)`)?(?: - at `([^`]*)`)?")
_KINDS = {
    "object": "a mapping", "array": "a list", "str": "a string", "int": "an integer",
    "float": "a number", "bool": "a boolean", "null": "nothing", "datetime": "a time",
}  # fmt: skip
_CODEC = re.compile(r"'[\w-]+' codec can't (?:de|en)code .*?: [\w ]+")
_ERRNO = re.compile(r"\[Errno -?[0-9]+\] ")
_OPENSSL = re.compile(r"\[(?:[A-Z0-9]+: )?[A-Z0-9_]{3,}\] | \(_ssl\.c:[0-9]+\)")


def plain_words(text: str) -> str:
    """Return a message without types, codecs and numbers of errors."""
    text = _EXPECTED.sub(_expected, text)
    text = _CODEC.sub("not a text in UTF-8", text)
    return _OPENSSL.sub("", _ERRNO.sub("", text))


def _expected(found: "re.Match[str]") -> str:
    wanted, got, path = found.groups()
    where = f"{path.removeprefix('$.')}: " if path and path != "$" else ""
    text = f"{where}expected {_kinds(wanted)}"
    return f"{text}, got {_kinds(got)}" if got else text


def _kinds(types: str) -> str:
    names = [each for each in types.split(" | ") if each != "null"] or ["null"]
    return " or ".join(_KINDS.get(each, each) for each in names)
