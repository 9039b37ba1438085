"""Rules, readings and objects for the adapter's unit tests, made from as little as possible."""

import json
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from adapter.discovery.objects import Names
from adapter.metric_rules.objects import StoredMetricRule, compiled
from adapter.rules import config
from adapter.rules.config import Config
from adapter.rules.ruleset import Rule, RuleSet, compile_rules
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.core.metrics import SampleGap
from podscale.core.selectors.selector import Selector
from podscale.core.silences import QueryWindow
from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand, Outcome, Reading
from podscale.kube.client.resource import DEPLOYMENTS, NAMESPACES, NODES, PODS, SERVICES, Resource
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.discovery import Mapper

STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", False, "storageclass"
)
MAPPER = Mapper([PODS, NODES, NAMESPACES, SERVICES, DEPLOYMENTS, STORAGE_CLASSES])

RULES = """
rules:
- seriesQuery: 'http_requests_total{pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: 'cpu{<<.LabelMatchers>>} by (<<.GroupBy>>)'
    nodeQuery: 'node_cpu{<<.LabelMatchers>>} by (<<.GroupBy>>)'
    resources: {template: <<.Resource>>}
    containerLabel: container
  memory:
    containerQuery: 'memory{<<.LabelMatchers>>} by (<<.GroupBy>>)'
    nodeQuery: 'node_memory{<<.LabelMatchers>>} by (<<.GroupBy>>)'
    resources: {template: <<.Resource>>}
    containerLabel: container
  window: 5m
"""


def rules(text: str = RULES) -> RuleSet:
    """Return compiled rules."""
    return compile_rules(config.parse(text, "rules.yaml"), MAPPER)


def own(namespace: str, rule: str = "web", **spec: object) -> RuleSet:
    """Return the MetricRule of a namespace, for the series ``depth`` unless ``spec`` differs."""
    wire = {
        "seriesQuery": "depth",
        "resources": {"overrides": {"pod": {"resource": "pod"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        **spec,
    }
    stored = StoredMetricRule(
        ObjectMeta(name=rule, namespace=namespace), msgspec.Raw(json.dumps(wire).encode())
    )
    sources = NamedSources(access={"default": SourceAccess((namespace,))})
    found = compiled(stored, MAPPER, sources)
    assert isinstance(found, Rule), found
    is_external = found.section == "externalRules"
    return RuleSet(Config(), () if is_external else (found,), (found,) if is_external else ())


def reading(
    objects: Mapping[str, float] | None = None,
    *,
    containers: Mapping[tuple[str, str], float] | None = None,
    series: Sequence[tuple[Mapping[str, str], float]] = (),
    times: Mapping[object, float] | None = None,
    stale: Mapping[str, float] | None = None,
    asked_s: float = 1000.0,
    nameless: int = 0,
    is_by_name: bool = False,
) -> Reading:
    """Return a reading by object, by container or by labels."""
    keys: list[object] = [*(objects or {}), *(containers or {})]
    values = [*(objects or {}).values(), *(containers or {}).values(), *(v for _, v in series)]
    stamps = [(times or {}).get(key, math.nan) for key in keys] + [math.nan] * len(series)
    index = {key: row for row, key in enumerate(keys)}
    return Reading(
        asked_s=asked_s,
        values=np.array(values, np.float64),
        time_s=np.array(stamps, np.float64),
        objects={k: r for k, r in index.items() if isinstance(k, str)},
        containers={k: r for k, r in index.items() if isinstance(k, tuple)},
        labels=tuple(labels for labels, _ in series),
        stale=stale or {},
        nameless=nameless,
        is_by_name=is_by_name,
    )


class RecordingFeed:
    """Answers by plan API and series; remembers what it was asked."""

    def __init__(self, answers: Mapping[str, Outcome] | None = None) -> None:
        self.options = FeedOptions()
        self.answers = dict(answers or {})
        self.asked: list[list[Demand]] = []
        self.gap_found: SampleGap | None = None

    def at_once(self, demand: Demand) -> Outcome | None:
        """Have no snapshot."""
        return None

    def gap(
        self, demand: Demand, outcome: Outcome, windows: Callable[[], Sequence[QueryWindow]]
    ) -> SampleGap | None:
        """Return ``gap_found``, where the demand has windows at all."""
        return self.gap_found if windows() else None

    async def read(self, demands: Sequence[Demand]) -> list[Outcome]:
        """Return one outcome per demand: by rule, else everybody's sample is 1.5."""
        self.asked.append(list(demands))
        return [self._one(demand) for demand in demands]

    def _one(self, demand: Demand) -> Outcome:
        for key, answer in self.answers.items():
            if demand.plan.rule.startswith(key):
                return answer
        if demand.plan.api == "external":
            return reading(series=[({"queue": "a"}, 7.0)])
        return reading(dict.fromkeys(demand.names, 1.5))


class GivenObjects:
    """Pods by namespace: name -> labels; all of them run."""

    def __init__(self, pods: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
        self._pods = pods

    def pod_names(self, namespace: str, selector: Selector) -> Names:
        """Return the pods that match."""
        pods = self._pods.get(namespace, {})
        names = tuple(sorted(name for name, labels in pods.items() if selector.matches(labels)))
        return Names(names, len(pods))

    running = pod_names

    def count(self, namespace: str) -> int:
        """Return how many pods there are."""
        return len(self._pods.get(namespace, {}))

    def changed(self, namespace: str) -> int:
        """Return another number for other pods."""
        return hash(str(self._pods.get(namespace)))

    def unchanged(self, namespace: str, selector: Callable[[], Selector], before: object) -> object:
        """Return ``before`` while it is equal to what the pods are."""
        found = self.pod_names(namespace, selector()).names
        return before if before == found else found

    def names_at(self, version: object) -> object:
        """Return the names."""
        return version

    def namespaces(self) -> list[str]:
        """Return the namespaces."""
        return sorted(self._pods)

    async def names(self, resource: Resource, namespace: str, selector: Selector) -> Names:
        """Return the objects that match."""
        return self.pod_names(namespace, selector)
