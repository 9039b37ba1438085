"""Hundreds of thousands of metrics: nothing walks all of them in one turn, or for one request."""

from collections.abc import Iterator

import pytest
from msgspec import structs

from adapter.discovery.listing import ListingBuilder, RuleListing
from adapter.discovery.registry import PAGE, MetricRegistry, RuleState, merging, why_unknown
from adapter.discovery.relist import Relister, RelistOptions
from adapter.stages import Stage
from podscale.feed.http.client import SeriesAnswer
from tests.kit.registry import merge
from tests.unit.adapter.world import rules

RULES = """
rules:
- seriesQuery: '{__name__=~"^many_.*"}'
  resources: {template: <<.Resource>>}
  seriesFilters: [{isNot: "_bucket$"}]
  name: {matches: "^many_(.*)$", as: "${1}_each"}
  metricsQuery: m
- seriesQuery: few
  resources: {template: <<.Resource>>}
  metricsQuery: m
"""
MANY = 4 * PAGE
SHAPE = frozenset({"__name__", "pod", "namespace"})


class Unwalkable(dict):
    """A mapping that is looked up only."""

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("all metrics were walked through")

    keys = values = items = __iter__


class Prometheus:
    """A ``Lister`` with many names."""

    def __init__(self, count: int = MANY) -> None:
        self.names = {f"many_{n}": frozenset((SHAPE,)) for n in range(count)}

    async def series(
        self, match: str, start_s: float, _source: str = "", _wanted: object = None
    ) -> SeriesAnswer:
        found = self.names if "many" in match else {"few": frozenset((SHAPE,))}
        return SeriesAnswer(dict(found), len(found))


def listed() -> RuleListing:
    builder = ListingBuilder(rules(RULES).custom[0])
    for number in range(100):
        builder.add(f"many_{number}", SHAPE)
    builder.add("many_x_bucket", SHAPE)
    builder.add("many_unmapped", frozenset({"__name__", "x"}))
    return builder.build()


@pytest.mark.parametrize(("resource", "metric", "stage"), [
    ("services", "7_each", Stage.NO_RESOURCE_LABEL),  # exposed for other kinds
    ("pods", "unmapped_each", Stage.LABEL_NOT_A_RESOURCE),
    ("pods", "x_bucket_each", Stage.FILTERED_OUT),
    ("pods", "many_x_bucket", Stage.FILTERED_OUT),
    ("pods", "many_7", Stage.NAME_MISMATCH),
    ("pods", "nothing", Stage.NO_SERIES),
])  # fmt: skip
def test_why_a_metric_is_unknown_is_looked_up(resource, metric, stage):
    found = listed()
    found = structs.replace(
        found, exposed=Unwalkable(found.exposed), lost=Unwalkable(found.lost),
        lost_as=Unwalkable(found.lost_as),
    )  # fmt: skip
    state = RuleState(found.rule, found, 1.0)
    assert why_unknown(MetricRegistry({}, (state,)), resource, metric).stage is stage


def test_listings_are_merged_in_pages():
    exposed = {("pods", f"m{n}"): None for n in range(MANY)}
    state = RuleState(rules(RULES).custom[0], structs.replace(listed(), exposed=exposed))
    steps = list(merging((state,), MetricRegistry()))
    assert len(steps) == MANY // PAGE
    merged = merge((state,), MetricRegistry())
    assert merged.sources == exposed
    assert merge((state,), merged).sources is merged.sources
    renewed = structs.replace(state, listing=structs.replace(state.listing, exposed={**exposed}))
    again = merge((renewed,), merged)
    assert (again.revision, again.sources is merged.sources) == (merged.revision, False)


@pytest.mark.parametrize("grace_s", [0.0, 3_600.0])
async def test_a_relist_that_brings_the_same_merges_nothing(grace_s):
    prometheus = Prometheus()
    made = Relister(prometheus, rules(RULES), RelistOptions(grace_s=grace_s))
    await made.relist()
    first = made.custom
    assert len(first.sources) == 2 * (MANY + 1)
    await made.relist()
    assert made.custom.sources is first.sources
    assert made.custom.revision == first.revision
    del prometheus.names["many_7"]
    await made.relist()
    assert (made.custom.find("pods", "7_each") is None) == (grace_s == 0.0)
    assert (made.custom.sources is first.sources) == (grace_s > 0.0)
    prometheus.names["many_new"] = frozenset((SHAPE,))
    await made.relist()
    assert made.custom.find("pods", "new_each") is not None
    assert made.custom.revision > first.revision


SHARED = """
rules:
- seriesQuery: '{__name__=~".+_busy"}'
  resources: {template: <<.Resource>>}
  name: {matches: "_busy$", as: busy}
  metricsQuery: sum(QUERY{<<.LabelMatchers>>})
"""


@pytest.mark.parametrize(("query", "shared"), [
    ("<<.Series>>", {"busy": {"a_busy", "b_busy"}}),
    ("x", {}),  # both names come to one query
])  # fmt: skip
def test_series_share_a_name_where_one_is_asked_and_they_are_of_one_kind(query, shared):
    builder = ListingBuilder(rules(SHARED.replace("QUERY", query)).custom[0])
    for name, label in (("a_busy", "pod"), ("b_busy", "pod"), ("b_busy", "node"), ("c_busy", "x")):
        builder.add(name, frozenset({"__name__", label}))
    assert builder.build().shared == shared
