"""Rules and requests as the feed's plans: what can be asked together and how it reads.

A plan is made once per (rule, series, resource, metric selector) and kept, so that the
feed proves it once. Raises ``RuleQueryError`` where a rule cannot ask such a thing at all.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from adapter.discovery.listing import MetricSource
from adapter.errors import RuleQueryError
from adapter.queries.promql import QueryTemplate, SelectorMatcher, of_selector
from adapter.rules.ruleset import ResourceRule
from podscale.core.boundedcache import BoundedCache
from podscale.core.selectors.selector import Selector
from podscale.core.silences import QueryWindow
from podscale.feed.plan import Api, KeyLabels, QueryPlan, Render
from podscale.feed.prover.confinement import NotConfined, confined
from podscale.feed.prover.tree import windows

_MOST_BYTES = 32 * 1024 * 1024  # some 8,000 that are asked for again: clients write selectors
_PLAN_BYTES = 2000
_MATCHER_BYTES = 250
_TEXT_BYTES = 12  # of each character of the matchers


class Plans:
    """Makes plans, and remembers them for as long as the rules stay."""

    def __init__(self) -> None:
        # A text says why there is no plan.
        self._plans: BoundedCache[tuple[object, ...], QueryPlan | str] = BoundedCache(_MOST_BYTES)
        self._windows: WeakKeyDictionary[QueryPlan, tuple[QueryWindow, ...]] = WeakKeyDictionary()

    def metric(
        self,
        source: MetricSource,
        resource: str,
        is_scoped: bool,
        selector: Selector,
        text: str,
    ) -> QueryPlan:
        """Return the plan for objects of ``resource[.group]`` ("": for an external metric).

        ``is_scoped``: it is asked for in a namespace. ``text`` is the canonical text of
        ``selector``.
        """
        rule = source.rule
        is_scoped = is_scoped and (resource != "" or rule.query.is_namespaced)
        key = (rule.id, rule.fingerprint, source.series, resource, is_scoped, text)
        found = self._known(key)
        if found is None:
            labels = KeyLabels(
                namespace=rule.namespace_label() if is_scoped else "",
                object=rule.labels.label(resource) if resource else "",
            )
            conditions = of_selector(selector)
            group_by = ((labels.object,), None) if resource else ((), "")
            to = rule.confinement
            found = self._keep(key, QueryPlan(
                "custom" if resource else "external",
                f"{rule.id}:{rule.fingerprint}",
                source.series,
                labels,
                renderer(rule.query, source.series, conditions, *group_by),
                tuple(map(str, conditions)),
                resource == "namespaces",
                rule.source,
                None if to is None else partial(confined, to=to),
            ))  # fmt: skip
        return found

    def containers(self, rule: ResourceRule) -> QueryPlan:
        """Return the plan for the containers of pods."""
        labels = KeyLabels(
            rule.labels.label("namespaces"), rule.labels.label("pods"), rule.container_label
        )
        group_by = (labels.object, rule.container_label)
        return self._resource(rule, "container", rule.containers, labels, group_by)

    def nodes(self, rule: ResourceRule) -> QueryPlan:
        labels = KeyLabels(object=rule.labels.label("nodes"))
        return self._resource(rule, "node", rule.nodes, labels, (labels.object,))

    def window_s(self, plan: QueryPlan) -> float | None:
        """Return the width of the window behind the plan's values, where it is one."""
        widths = {each.range_s for each in self.windows(plan)}
        return widths.pop() if len(widths) == 1 else None

    def windows(self, plan: QueryPlan) -> tuple[QueryWindow, ...]:
        """Return what the plan's query looks back over, as far as it can be parsed."""
        if plan not in self._windows:
            self._windows[plan] = windows(plan.text("x", ("x",)))
        return self._windows[plan]

    def clear(self) -> None:
        """Forget everything; after a reload plans of old rules are of no use."""
        self._plans.clear()
        self._windows.clear()

    def _resource(
        self,
        rule: ResourceRule,
        api: Api,
        query: QueryTemplate,
        labels: KeyLabels,
        group_by: Sequence[str],
    ) -> QueryPlan:
        key = (rule.id, rule.fingerprint, api)
        found = self._known(key)
        if found is None:
            name = f"{rule.id}.{api}:{rule.fingerprint}"
            render = renderer(query, "", (), group_by, None)
            found = self._keep(key, QueryPlan(api, name, "", labels, render, source=rule.source))
        return found

    def _known(self, key: tuple[object, ...]) -> QueryPlan | None:
        found = self._plans.get(key)
        if isinstance(found, str):
            raise RuleQueryError(found)
        return found

    def _keep(self, key: tuple[object, ...], plan: QueryPlan) -> QueryPlan:
        size = _PLAN_BYTES + _MATCHER_BYTES * len(plan.matchers)
        size += _TEXT_BYTES * sum(map(len, plan.matchers))
        try:
            plan.text("x", ("x",))  # a template that can never be executed is refused here, once
        except NotConfined as error:
            refusal = f"metricsQuery cannot be kept within a namespace: {error}"
            self._plans.put(key, refusal, size + len(refusal))
            raise RuleQueryError(refusal) from None
        self._plans.put(key, plan, size)
        return plan


def renderer(
    query: QueryTemplate,
    series: str,
    conditions: Sequence[SelectorMatcher],
    group_by_slice: Sequence[str],
    group_by: str | None,
) -> Render:
    """Return what renders the query of one series; ``group_by_slice`` is ``.GroupBySlice``, and
    ``group_by`` what ``.GroupBy`` is instead of that joined."""
    selected = {m.label: m.listed for m in conditions}

    def render(label_matchers: str, values: Mapping[str, str]) -> str:
        # A selector on the namespace or object label: the request's own value is shown.
        shown = {**selected, **values}
        return query.render(series, label_matchers, shown, group_by_slice, group_by)

    return render
