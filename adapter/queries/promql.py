"""PromQL from a rule and a request: its matchers, and the query with them.

Follows ``processQueryParts``, ``selectMatcher`` and, with the plans, ``metricsQuery.Build`` and
``BuildExternal`` in prometheus-adapter ``pkg/naming``: the text is part of the
contract, down to Go's ``%q`` quoting. Pure: the same rule and request render the same text.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from adapter.discovery.labels import ResourceLabels
from adapter.errors import EmptyQuery, RuleQueryError, UnsupportedOperator
from podscale.core import gotemplate
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


class QueryTemplate:
    """The metricsQuery of one rule."""

    def __init__(self, text: str, labels: ResourceLabels, *, is_namespaced: bool = True) -> None:
        """Parse; raises ``gotemplate.TemplateSyntaxError``."""
        self.text = text
        self.labels = labels
        self.is_namespaced = is_namespaced  # external rules: add the namespace matcher
        self._template = gotemplate.parse(text)

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the template names."""
        return self._template.fields

    def render(
        self,
        series: str,
        label_matchers: str,
        values: Mapping[str, str],
        group_by_slice: Sequence[str],
        group_by: str | None = None,
    ) -> str:
        """Return the query for matchers that are already text; raises ``RuleQueryError``."""
        fields: dict[str, gotemplate.Value] = {
            "Series": series,
            "LabelMatchers": label_matchers,
            "LabelValuesByName": values,
            "GroupBy": ",".join(group_by_slice) if group_by is None else group_by,
            "GroupBySlice": list(group_by_slice),
        }
        try:
            query = self._template.render(fields)
        except gotemplate.TemplateError as error:
            raise RuleQueryError(f"metricsQuery fails: {error}") from None
        if not query:
            raise EmptyQuery(f"metricsQuery {self.text!r} renders to nothing")
        return query
