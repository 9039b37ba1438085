"""A relist that finds nothing new comes to what working everything off again comes to."""

import asyncio
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from adapter.discovery.listing import RuleListing
from adapter.discovery.relist import Relister, RelistOptions
from adapter.rules import config
from adapter.rules.ruleset import RuleSet, compile_rules
from podscale.feed.http import refusals
from podscale.feed.http.client import SeriesAnswer
from podscale.kube.client.resource import NAMESPACES, PODS, SERVICES, Resource
from podscale.kube.discovery import Mapper

RULES = """
rules:
- seriesQuery: asked
  resources: {overrides: {pod: {resource: pod}, ns: {resource: namespace}}}
  name: {matches: "^(.*)_total$", as: "$1"}
  metricsQuery: m
- seriesQuery: asked
  resources: {template: <<.Resource>>}
  metricsQuery: m
externalRules:
- seriesQuery: asked
  seriesFilters: [{isNot: "^b_"}]
  metricsQuery: m
"""


class Round(Struct, frozen=True):
    """What Prometheus and the cluster have at one relist."""

    answer: Mapping[str, frozenset[frozenset[str]]] | None  # None: it fails
    is_partial: bool
    crowded: tuple[str, ...]
    has_services: bool


labels = st.frozensets(st.sampled_from(["pod", "ns", "namespace", "service", "x"]), max_size=3)
answers = st.dictionaries(
    st.sampled_from(["a_total", "b_total", "a", "c"]),
    st.frozensets(labels, min_size=1, max_size=3),
    max_size=4,
)


@st.composite
def rounds(draw: st.DrawFn) -> list[Round]:
    """Draw a history in which answers come back."""
    known = draw(st.lists(st.none() | answers, min_size=1, max_size=3))
    crowded = st.lists(st.sampled_from(["a", "c"]), max_size=1).map(tuple)
    some = st.builds(Round, st.sampled_from(known), st.booleans(), crowded, st.booleans())
    return draw(st.lists(some, min_size=2, max_size=6))


class Cluster:
    """A ``Lister`` and a ``ResourceMapper`` of which one round is now."""

    def __init__(self, now: Round) -> None:
        self.now = now

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        services = [SERVICES] if self.now.has_services else []
        return Mapper([PODS, NAMESPACES, *services]).resource_for(resource, group, version)

    async def series(self, *_: object) -> SeriesAnswer:
        if self.now.answer is None:
            raise refusals.error("timeout", "late")
        crowded = dict.fromkeys(self.now.crowded)
        return SeriesAnswer(
            dict(self.now.answer), len(self.now.answer), self.now.is_partial, crowded
        )

    async def series_by(self, *_: object) -> Mapping[str, SeriesAnswer]:
        raise AssertionError("no rule is of a namespace")

    def rules(self) -> RuleSet:
        return compile_rules(config.parse(RULES, "rules.yaml"), self)


def forget(relister: Relister) -> None:
    """Let every list be worked off again."""
    for name, state in relister.states.items():
        if isinstance(state.listing, RuleListing):
            listing = structs.replace(state.listing, names=None)
            relister.states[name] = structs.replace(state, listing=listing)


def seen(relister: Relister) -> object:
    """Return everything that a relist has come to."""
    states = []
    for state in relister.states.values():
        found = state.listing
        if found is not None:
            exposed = {key: source.series for key, source in found.exposed.items()}
            found = structs.replace(found, rule=None, exposed=exposed, names=None)
        states.append((found, state.listed_s, state.series, state.failure, state.gone))
    served = [
        {key: (source.rule.id, source.series) for key, source in registry.sources.items()}
        for registry in (relister.custom, relister.external)
    ]
    return states, served, relister.custom.revision, relister.external.revision


@settings(deadline=None)
@given(rounds(), st.sampled_from([0.0, 1.5]))
def test_what_is_not_worked_off_again_is_the_same(drawn: list[Round], grace_s: float) -> None:
    cluster = Cluster(drawn[0])
    now = [0.0]
    kept, anew = (
        Relister(cluster, cluster.rules(), RelistOptions(grace_s=grace_s), clock=lambda: now[0])
        for _ in range(2)
    )

    async def play() -> None:
        for cluster.now in drawn:
            now[0] += 1.0
            for relister in (kept, anew):
                await relister.relist()
            assert seen(kept) == seen(anew)
            forget(anew)

    asyncio.run(play())
