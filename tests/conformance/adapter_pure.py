"""Cases of parts A and B that are functions from a configuration to names and queries."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from adapter.discovery.labels import ResourceLabels
from adapter.discovery.mapping import ResourceMapper
from adapter.errors import ConfigInvalid
from adapter.queries.plans import renderer
from adapter.queries.promql import QueryTemplate, of_selector
from adapter.rules import config_gen
from adapter.rules.config import (
    Config,
    GroupResource,
    NameMapping,
    ResourceMapping,
    RuleConfig,
    SeriesFilter,
)
from adapter.rules.config import parse as parse_config
from adapter.rules.ruleset import RuleSet, compile_rules
from podscale.core.selectors.selector import Selector
from podscale.core.times import duration
from podscale.feed.plan import Api, KeyLabels, QueryPlan
from podscale.kube.discovery import Mapper as RestMapper


class NamesAsLabels:
    """The converter of upstream's query tests: a label is called as its resource."""

    def label(self, key: str) -> str:
        return key.partition(".")[0]


def mapping(template: str, overrides: dict[str, Any] | None) -> ResourceMapping:
    """Return the ``resources`` of a row."""
    return ResourceMapping(
        template=template,
        overrides={
            label: GroupResource(o["resource"], o.get("group", ""))
            for label, o in (overrides or {}).items()
        },
    )


def labels_of(
    template: str, overrides: dict[str, Any] | None, mapper: ResourceMapper
) -> ResourceLabels:
    """Return the compiled ``resources`` of a row."""
    return ResourceLabels(mapping(template, overrides), mapper)


def filters_of(entries: Iterable[dict[str, str]] | None) -> tuple[SeriesFilter, ...]:
    """Return the ``seriesFilters`` of a row."""
    return tuple(SeriesFilter(e.get("is", ""), e.get("isNot", "")) for e in entries or ())


def compiled(rules: Sequence[RuleConfig], mapper: ResourceMapper) -> RuleSet:
    """Compile rules as a file with these rules would be."""
    return compile_rules(parse_config(file(rules)), mapper)


def refused(text: str, mapper: ResourceMapper) -> str | None:
    """Return why a file is refused, ``None`` when it is not."""
    try:
        compile_rules(parse_config(text), mapper)
    except ConfigInvalid as error:
        return str(error)
    return None


def rule(matches: str = "", as_: str = "", filters: Any = None) -> RuleConfig:
    """Return a rule about which only its names matter."""
    return RuleConfig("q", filters_of(filters), ResourceMapping(), NameMapping(matches, as_), "x")


SERIES = (
    "container_cpu_usage_seconds_total",
    "container_fs_reads_total",
    "container_memory_rss",
    "http_requests_total",
    "go_info",
    "",
)


def file(rules: Sequence[RuleConfig]) -> str:
    """Return the text of a file with these rules."""
    return json.dumps({"rules": [config_gen.dump_rule(rule) for rule in rules]})


def is_constructors(error: str) -> bool:
    """Return whether it is an error of start-up, not of one request."""
    return error.startswith("ctor:")


def line_of(error: str) -> int | None:
    """Return the line of the first field that upstream's error names.

    That of a text which is no YAML at all is where its scanner stands, not where the fault is.
    """
    found = re.search(r"unmarshal errors:\s*line (\d+)", error)
    return int(found[1]) if found else None


def as_upstream(config: Config) -> Any:
    """Return a parsed file as the JSON of upstream's structs, in comparable form."""
    return comparable(config_gen.dump(config))


def comparable(value: Any, key: str = "") -> Any:
    """Return JSON without what is empty, and windows in seconds.

    Upstream tells null, empty and absent apart in JSON, and nowhere else.
    """
    if isinstance(value, dict):
        made = {k: comparable(v, k) for k, v in value.items()}
        return {k: v for k, v in made.items() if v not in (None, [], {}, "")}
    if isinstance(value, list):
        return [comparable(v) for v in value]
    if key == "window":
        return _seconds(value)
    return value


def _seconds(window: str | float | None) -> float | None:
    if isinstance(window, str):
        try:
            return duration.parse_prometheus(window) or None
        except duration.DurationError:
            return duration.parse_go(window) or None
    return window / 1e9 if window else None  # Go's own JSON counts nanoseconds


def external_rules(*series_queries: str) -> RuleSet:
    """Return compiled external rules that differ in their seriesQuery only."""
    entries = [{"seriesQuery": query, "metricsQuery": "x"} for query in series_queries]
    return compile_rules(parse_config(json.dumps({"externalRules": entries})), RestMapper())


def custom(
    query: QueryTemplate,
    series: str,
    key: str,
    namespace: str,
    names: Sequence[str] | None,
    wanted: Selector,
    extra: Sequence[str] | None = None,
) -> str:
    """Return the query of a plan for objects, grouped by labels more than theirs."""
    scope = query.labels.label("namespaces") if namespace else ""
    labels = KeyLabels(scope, query.labels.label(key))
    group_by = (labels.object, *(extra or ()))
    return _plan("custom", query, series, labels, wanted, group_by).text(namespace, names or ())


def external(
    query: QueryTemplate,
    series: str,
    namespace: str,
    wanted: Selector,
    group_by: str = "",
    group_by_slice: Sequence[str] | None = None,
) -> str:
    """Return the query of a plan for an external metric."""
    is_scoped = query.is_namespaced and namespace
    labels = KeyLabels(query.labels.label("namespaces") if is_scoped else "")
    plan = _plan("external", query, series, labels, wanted, group_by_slice or (), group_by)
    return plan.text(namespace, ())


def _plan(
    api: Api, query: QueryTemplate, series: str, labels: KeyLabels, wanted: Selector,
    group_by_slice: Sequence[str], group_by: str | None = None,
) -> QueryPlan:  # fmt: skip
    conditions = of_selector(wanted)
    render = renderer(query, series, conditions, group_by_slice, group_by)
    return QueryPlan(api, "", series, labels, render, tuple(map(str, conditions)))
