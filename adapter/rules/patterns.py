"""Regular expressions of rules, in Go's dialect.

Python's ``re`` differs where it hurts (``$`` before a final newline, ``\\d`` beyond ASCII,
lookaround): RE2 is what Go's regexp implements.
"""

from collections.abc import Mapping
from weakref import WeakValueDictionary

import re2

# Of one pattern: `[^x]{1000}` takes 67 KB of 10 characters. 500 names of 25 letters fit.
_OPTIONS = re2.Options()
_OPTIONS.max_mem = 64 * 1024
_OPTIONS.log_errors = False  # RE2 would print to stderr what is raised anyway


class PatternTooLarge(ValueError):
    """The pattern takes more memory, compiled, than one may."""


class Pattern:
    def __init__(self, text: str) -> None:
        """Compile; raises ``re2.error``."""
        compiled = re2.compile(text, _OPTIONS)
        re2.purge()  # the library keeps the last 128, also of rules that are gone
        self.search = compiled.search
        self.groups: int = compiled.groups
        self.groupindex: Mapping[str, int] = compiled.groupindex


_patterns: WeakValueDictionary[str, Pattern] = WeakValueDictionary()  # most rules share theirs


def compile(text: str) -> Pattern:  # noqa: A001 - read as patterns.compile
    """Return the compiled pattern; raises ``ValueError`` saying what is wrong with it."""
    pattern = _patterns.get(text)
    if pattern is not None:
        return pattern
    try:
        return _patterns.setdefault(text, Pattern(text))
    except re2.error as error:
        detail = error.args[0] if error.args else error
    if isinstance(detail, bytes):
        detail = detail.decode("utf-8", "replace")
    if "too large" in str(detail):
        most = _OPTIONS.max_mem
        raise PatternTooLarge(f"{text!r} takes more than {most} bytes of memory: repeat less")
    raise ValueError(
        f"{text!r} is not a regular expression that RE2 knows ({detail}); "
        "lookaround and backreferences do not exist there"
    )
