"""PromQL label matchers from Kubernetes selectors.

Follows ``processQueryParts`` and ``selectMatcher`` in prometheus-adapter ``pkg/naming``
(adapter.md 1.5): the text is part of the contract, down to Go's ``%q`` quoting.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from adapter.errors import UnsupportedOperator
from podscale.core.goquote import quote
from podscale.core.selectors.selector import Operator, Requirement, Selector

_FORMS: dict[Operator, str] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "in": "=~",
    "notin": "!~",
    "exists": "!=",
    "!": "=",
}
# With dots, which VictoriaMetrics takes and Prometheus refuses.
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class SelectorMatcher(Struct, frozen=True):
    """One condition of a PromQL selector."""

    label: str
    form: str  # "=", "!=", "=~" or "!~"
    value: str
    listed: str  # what `.LabelValuesByName` shows: the values, joined with |

    def __str__(self) -> str:
        """Return ``label="value"`` with Go's quoting; the label is taken as it is."""
        return f"{self.label}{self.form}{quote(self.value)}"


def equals(label: str, value: str) -> SelectorMatcher:
    """Return ``label="value"``."""
    return SelectorMatcher(label, "=", value, value)


def names(label: str, objects: Sequence[str]) -> SelectorMatcher:
    """Return the matcher for objects by name: ``=`` for one or none, else an alternation.

    Names are not escaped, as upstream: a dot in one of several names matches any character.
    """
    value = "|".join(objects)
    return SelectorMatcher(label, "=~" if len(objects) > 1 else "=", value, value)


def of_selector(selector: Selector) -> list[SelectorMatcher]:
    """Return one matcher per requirement, sorted by key; raises ``UnsupportedOperator``."""
    return [_matcher(r) for r in selector.requirements]


def unwritable(selector: Selector) -> str:
    """Return why no query can have these conditions, "" if one can.

    Keys of selectors are written into queries as they are, and may hold - and /.
    """
    bad = [each.key for each in selector.requirements if not _LABEL.fullmatch(each.key)]
    return f"{bad[0]} is no label of a series: label names have neither - nor /" if bad else ""


def _matcher(requirement: Requirement) -> SelectorMatcher:
    form = _FORMS.get(requirement.operator)
    if form is None:
        sign = {"gt": ">", "lt": "<"}.get(requirement.operator, requirement.operator)
        raise UnsupportedOperator(
            f"{requirement.key}{sign}{''.join(requirement.values)}: PromQL matchers cannot "
            "compare by size; select by =, !=, in, notin or existence"
        )
    listed = "|".join(requirement.values)
    return SelectorMatcher(requirement.key, form, listed, listed)
