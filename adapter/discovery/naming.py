"""What a series is called as a metric.

``name.matches`` is searched in the series name (RE2, unanchored), ``name.as`` is expanded
from the match with Go's ``Regexp.Expand``: the name is the expansion alone, not the series
name with a part replaced.
"""

import re
from collections.abc import Mapping

import re2

from adapter.rules import patterns

LONGEST = 253  # characters of a metric's name, as of that of an object

_NAME_START = "$"
# What people write for a group: Go's $1 and ${1}, and what sed, Perl and make have instead.
_GROUP = re.compile(
    r"\$\$|\$\{\w+\}|(?P<bare>\$(?P<word>\w+))"
    r"|(?P<other>\{(?P<braced>\w+)\}|\$\((?P<round>\w+)\)|\\(?P<digits>[0-9]+))"
)


class Namer:
    def __init__(self, matches: str, as_: str) -> None:
        """Compile; raises ``ValueError`` with what to write instead."""
        self._pattern = patterns.compile(matches or ".*")
        groups = self._pattern.groups
        if not as_ and groups > 1:
            raise ValueError(
                f"name.as is needed because name.matches {matches!r} has {groups} capture "
                "groups, and which of them is the name cannot be guessed"
            )
        self.written = as_ or ("$1" if groups else "$0")
        self._groups = {*map(str, range(groups + 1)), *self._pattern.groupindex}
        self._last: tuple[str, str | None] | None = None  # most rules have one series to name

    @property
    def only(self) -> str | None:
        """The one name that it gives; ``None``: it takes the name from the series."""
        return None if _NAME_START in self.written else self.written

    def name(self, series: str) -> str | None:
        """Return the metric's name, possibly empty; ``None`` when the pattern does not match, or
        it would be longer than ``LONGEST``: ``name.as`` may repeat that of a series 128 times.
        """
        if self._last is None or self._last[0] != series:
            match = self._pattern.search(series)
            named = match and expand(self.written, match, self._pattern.groupindex)
            self._last = series, named if named is None or len(named) <= LONGEST else None
        return self._last[1]

    def meant(self) -> str | None:
        """Return ``name.as`` with ``${1}`` where a group was meant and Go reads none.

        ``None`` where there is nothing of that kind.
        """
        made = _GROUP.sub(self._mended, self.written)
        return made if made != self.written else None

    def _mended(self, found: "re.Match[str]") -> str:
        if found["bare"]:
            word = found["word"]
            if word in self._groups:
                return found[0]
            # The longest beginning that is a group: $1_x is ${1}_x.
            for end in range(len(word) - 1, 0, -1):
                if word[:end] in self._groups:
                    return f"${{{word[:end]}}}{word[end:]}"
        elif found["other"]:
            group = found["braced"] or found["round"] or found["digits"]
            if group in self._groups:
                return f"${{{group}}}"
        return found[0]


def expand(template: str, match: "re2._Match", names: Mapping[str, int]) -> str:
    """Return ``template`` with ``$1``, ``${1}``, ``$name`` and ``$$`` replaced as Go does.

    An unknown or unmatched group is empty, a ``$`` that starts no name stays, and an
    unbraced name runs as far as letters, digits and ``_`` go (``$1_x`` is a group ``1_x``).
    """
    out: list[str] = []
    rest = template
    while True:
        before, dollar, rest = rest.partition(_NAME_START)
        out.append(before)
        if not dollar:
            return "".join(out)
        if rest.startswith(_NAME_START):
            out.append(_NAME_START)
            rest = rest[1:]
            continue
        name, after = _group_name(rest)
        if not name:
            out.append(_NAME_START)
            continue
        rest = after
        group = _group_number(name) if name.isascii() and name.isdigit() else names.get(name)
        if group is not None and group <= match.re.groups:
            out.append(match.group(group) or "")


def _group_name(text: str) -> tuple[str, str]:
    braced = text.startswith("{")
    start = end = int(braced)
    while end < len(text) and (text[end] == "_" or text[end].isalpha() or text[end].isdecimal()):
        end += 1
    name = text[start:end]
    if not braced:
        return name, text[end:]
    if not name or text[end : end + 1] != "}":
        return "", text
    return name, text[end + 1 :]


def _group_number(digits: str) -> int | None:
    # Go reads "01" as a name, and no group is called that.
    return None if digits[0] == "0" and len(digits) > 1 else int(digits)
