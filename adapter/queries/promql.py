"""PromQL from a rule and a request.

Follows ``metricsQuery.Build`` and ``BuildExternal`` in prometheus-adapter ``pkg/naming``.
Pure: the same rule and request always render the same text.
"""

from collections.abc import Mapping, Sequence

from adapter.discovery.labels import ResourceLabels
from adapter.errors import EmptyQuery, RuleQueryError
from adapter.queries import matchers
from podscale.core import gotemplate
from podscale.core.selectors.selector import EVERYTHING, Selector


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

    def build(
        self,
        series: str,
        resource: str,
        namespace: str,
        names: Sequence[str],
        selector: Selector = EVERYTHING,
        extra_group_by: Sequence[str] = (),
    ) -> str:
        """Return the query for objects of ``resource[.group]``; raises ``RuleQueryError``."""
        found = matchers.of_selector(selector)
        if namespace:
            found.append(matchers.equals(self.labels.label("namespaces"), namespace))
        label = self.labels.label(resource)
        found.append(matchers.names(label, names))
        return self._render(series, found, (label, *extra_group_by), None)

    def build_external(
        self,
        series: str,
        namespace: str,
        selector: Selector = EVERYTHING,
        group_by: str = "",
        group_by_slice: Sequence[str] = (),
    ) -> str:
        """Return the query for an external metric; raises ``RuleQueryError``."""
        found = matchers.of_selector(selector)
        if self.is_namespaced and namespace:
            found.append(matchers.equals(self.labels.label("namespaces"), namespace))
        return self._render(series, found, group_by_slice, group_by)

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

    def _render(
        self,
        series: str,
        found: Sequence[matchers.SelectorMatcher],
        group_by_slice: Sequence[str],
        group_by: str | None,
    ) -> str:
        values = {m.label: m.listed for m in found}
        return self.render(series, ",".join(map(str, found)), values, group_by_slice, group_by)
