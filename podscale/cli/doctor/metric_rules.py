"""Rules that are objects, as the doctor reports them: by their status, and by its own reading.

What only the adapter knows (the sources, the series) stands in the status, in the words that the
doctor has for a rule of a file; what an object is refused for is found here as well. Those that
the Prometheus of the command line answers are followed by the checks of a file's rules.
"""

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct, structs

from adapter.metric_rules.objects import (
    CLUSTER_METRIC_RULES,
    METRIC_RULES,
    RuleRefusal,
    StoredMetricRule,
    beyond_bounds,
    compiled,
)
from adapter.metric_rules.status import SERVING, MetricRuleStatus, is_refused, written_status
from adapter.rules.ruleset import Rule
from adapter.sources.sources_file import DEFAULT_SOURCE, NamedSources, SourceAccess
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.rule_reports import RuleReport
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode

_EVERY = SourceAccess(("*",))


class EverySource(dict[str, SourceAccess]):
    """Lets any namespace ask any source: which may, only the adapter knows."""

    def __init__(self, namespace_label: str) -> None:
        super().__init__()
        self._access = structs.replace(_EVERY, namespace_label=namespace_label)

    def __contains__(self, _name: object) -> bool:
        return True

    def get(self, _name: str, _default: object = None) -> SourceAccess:
        return self._access


class ReadObject(Struct, frozen=True):
    """An object, and the rule or the refusal that it comes to here."""

    stored: StoredMetricRule
    rule: Rule | RuleRefusal


def has_objects(cluster: DoctorCluster) -> bool:
    """Return whether the cluster knows MetricRules."""
    return any(each.group == METRIC_RULES.group for each in cluster.mapper.resources)


async def objects(cluster: DoctorCluster, namespace: str, namespace_label: str) -> list[ReadObject]:
    """Return the MetricRules of ``namespace`` ("": of all), then those of everywhere, read as in
    an adapter that keeps namespaces apart by ``namespace_label`` ("": the usual one).
    """
    sources = NamedSources(access=EverySource(namespace_label or _EVERY.namespace_label))
    found = [each async for each in _listed(cluster, METRIC_RULES, namespace)]
    found += [each async for each in _listed(cluster, CLUSTER_METRIC_RULES, "")]
    beyond = beyond_bounds(found)
    return [
        ReadObject(each, compiled(each, cluster.mapper, sources, beyond.get(each.origin)))
        for each in found
    ]


def of_default_source(found: Sequence[ReadObject]) -> list[Rule]:
    """Return the rules that the Prometheus of ``--prometheus-url`` answers; later ones go first."""
    rules = []
    for each in found:
        # Which source a namespace has, and who may ask it, the adapter knows.
        status = written_status(each.stored)
        if status.observed_generation != each.stored.metadata.generation:
            status = MetricRuleStatus()  # the old one tells of another spec
        if (
            isinstance(each.rule, Rule)
            and (status.source or each.rule.source) in ("", DEFAULT_SOURCE)
            and not is_refused(status)
        ):
            rules.append(each.rule)
    return sorted(rules, key=lambda rule: bool(rule.namespace))


def answering(metric: str, found: Sequence[RuleReport]) -> str:
    """Return which of the objects answers for a metric; "": none does."""
    names = [each.rule for each in found if metric in each.names and not each.problem]
    own = [name for name in names if name.startswith(METRIC_RULES.kind)]
    return (own or names or [""])[-1]


async def _listed(
    cluster: DoctorCluster, resource: Resource, namespace: str
) -> AsyncIterator[StoredMetricRule]:
    async for page in cluster.listed(resource.path(namespace), resource.plural):
        for each in page:
            yield decode(each, StoredMetricRule)


def report(found: ReadObject) -> RuleReport:
    """Return what became of an object."""
    stored, rule = found.stored, found.rule
    status = written_status(stored)
    if isinstance(rule, RuleRefusal):
        return RuleReport(stored.origin, 0, (), f"{rule.reason}: {rule.message}")
    if status.observed_generation != stored.metadata.generation:
        text = "NotListedYet: no adapter has said what became of it; ask again in some seconds"
        return RuleReport(stored.origin, 0, (), text)
    problem = status.last_error
    if not problem:
        # Served, but for what another rule of the same names answers.
        problem = next((c.message for c in status.conditions if c.type == SERVING), "")
    return RuleReport(stored.origin, status.metrics_exposed, status.metrics, problem)
