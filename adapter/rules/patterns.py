"""Regular expressions of the rules file, in Go's dialect.

Python's ``re`` differs where it hurts (``$`` before a final newline, ``\\d`` beyond ASCII,
lookaround): RE2 is what Go's regexp implements.
"""

from functools import lru_cache

import re2


@lru_cache(maxsize=4096)
def compile(text: str) -> "re2._Regexp":  # noqa: A001 - read as patterns.compile
    """Return the compiled pattern; raises ``ValueError`` saying what is wrong with it."""
    options = re2.Options()
    options.log_errors = False  # RE2 would print to stderr what is raised anyway
    try:
        return re2.compile(text, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        if isinstance(detail, bytes):
            detail = detail.decode("utf-8", "replace")
        raise ValueError(
            f"{text!r} is not a regular expression that RE2 knows ({detail}); "
            "lookaround and backreferences do not exist there"
        ) from None
