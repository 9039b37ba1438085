"""Rules that are objects, as the doctor reports them: by their status, and by its own reading.

What only the adapter knows (the sources, the series) stands in the status, in the words that the
doctor has for a rule of a file; what an object is refused for is found here as well.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from adapter.metric_rules.objects import (
    CLUSTER_METRIC_RULES,
    METRIC_RULES,
    RuleRefusal,
    StoredMetricRule,
    compiled,
)
from adapter.metric_rules.status import SERVING, written_status
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.rule_reports import RuleReport
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode


class EverySource(dict[str, SourceAccess]):
    """Lets any namespace ask any source: which may, only the adapter knows."""

    def __contains__(self, _name: object) -> bool:
        return True

    def get(self, _name: str, _default: object = None) -> SourceAccess:
        return SourceAccess(("*",))


def has_objects(cluster: DoctorCluster) -> bool:
    """Return whether the cluster knows MetricRules."""
    return any(each.group == METRIC_RULES.group for each in cluster.mapper.resources)


async def reports(cluster: DoctorCluster, namespace: str) -> list[RuleReport]:
    """Return what became of the MetricRules of ``namespace`` ("": of all) and of those of
    everywhere, in the order in which they go before each other.
    """
    found = [each async for each in _objects(cluster, METRIC_RULES, namespace)]
    found += [each async for each in _objects(cluster, CLUSTER_METRIC_RULES, "")]
    return [_report(cluster, each) for each in found]


def answering(metric: str, found: Sequence[RuleReport]) -> str:
    """Return which of the objects answers for a metric; "": none does."""
    names = [each.rule for each in found if metric in each.names and not each.problem]
    own = [name for name in names if name.startswith(METRIC_RULES.kind)]
    return (own or names or [""])[-1]


async def _objects(
    cluster: DoctorCluster, resource: Resource, namespace: str
) -> AsyncIterator[StoredMetricRule]:
    async for page in cluster.listed(resource.path(namespace), resource.plural):
        for each in page:
            yield decode(msgspec.json.encode(each), StoredMetricRule)


def _report(cluster: DoctorCluster, stored: StoredMetricRule) -> RuleReport:
    status = written_status(stored)
    refused = compiled(stored, cluster.mapper, NamedSources(access=EverySource()))
    if isinstance(refused, RuleRefusal):
        return RuleReport(stored.origin, 0, (), f"{refused.reason}: {refused.message}")
    if status.observed_generation != stored.metadata.generation:
        text = "NotListedYet: no adapter has said what became of it; ask again in some seconds"
        return RuleReport(stored.origin, 0, (), text)
    problem = status.last_error
    if not problem:
        # Served, but for what another rule of the same names answers.
        problem = next((c.message for c in status.conditions if c.type == SERVING), "")
    return RuleReport(stored.origin, status.metrics_exposed, status.metrics, problem)
