"""The parts of the product, and what their command lines may not say.

What the parts of a process share (the feed, the watches of VPAs, the connection) can be told
one thing only.
"""

from collections.abc import Sequence
from functools import partial

from msgspec import structs

from adapter import flags as adapter_flags
from adapter import part as adapter_part
from adapter import precheck
from adapter.apis.metric_providers import MetricSources
from adapter.queries.usage import past_queries
from adapter.rules.config import Config
from adapter.rules.ruleset import RuleSet
from hpa import part as hpa_part
from hpa.decide.api.spec import HPA
from podscale.core.metrics import MetricsProvider
from podscale.kube.discovery import ApiDiscovery
from podscale.nodes import part as nodes_part
from podscale.process.part import Flagged, Kinds, PartKind
from podscale.replay.gate_process import GateProcess
from podscale.replay.history import LoadQuery, load_queries, resource_of
from podscale.serving import flag_table
from podscale.serving.flags import Flags
from vpa.admission import part as admission_part
from vpa.recommender import flags as recommender_flags
from vpa.recommender import part as recommender_part
from vpa.recommender.history.usage_history import UsageHistory, UsageRangeQuery
from vpa.updater import part as updater_part

# Flags of whatever may read Prometheus; where both name a flag (--service), it is the part's.
_READERS = (*adapter_flags.OWN, *adapter_flags.FEED)
# Of these, those that are each part's own.
_OF_EACH = frozenset({"service", "adopt"})


def _past_of(flags: Flags) -> recommender_part.PastOf | None:
    """Return where history is: with the feed, what the adapter's rules read live."""
    if not recommender_flags.uses_feed(flags):
        return None

    def past(provider: MetricsProvider, namespaces: Sequence[str]) -> UsageHistory:
        if not isinstance(provider, MetricSources):
            raise TypeError("history by the adapter's rules needs the adapter's feed")
        found = past_queries(provider.provider.usage.rules, namespaces)
        cpu, memory = (
            tuple(UsageRangeQuery(q.text, q.pod, q.container, q.namespace, q.only) for q in queries)
            for queries in (found.cpu, found.memory)
        )
        return UsageHistory(adapter_flags.prometheus_options(flags), cpu, memory)

    return past


def with_feed(kind: PartKind) -> PartKind:
    """Return a part that may read Prometheus, with the flags for that."""
    return structs.replace(kind, table=(*_READERS, *kind.table))


def _gate_of(flags: Flags) -> hpa_part.GateOf:
    """Return what judges forecasts: by the history of what the adapter's rules read live."""

    def gate(provider: MetricsProvider, discovery: ApiDiscovery) -> GateProcess | None:
        if not isinstance(provider, MetricSources):
            return None
        found = provider.provider

        def queries(hpa: HPA) -> list[LoadQuery]:
            rules = RuleSet(Config(), resource=found.usage.rules)
            resources = partial(resource_of, discovery.mapper)
            return load_queries(hpa, rules, *found.listed, resources)

        return GateProcess(adapter_flags.prometheus_options(flags), queries)

    return gate


KINDS: Kinds = {
    "adapter": adapter_part.KIND,
    "hpa": with_feed(hpa_part.kind(_gate_of)),
    "recommender": with_feed(recommender_part.kind(_past_of)),
    "updater": updater_part.KIND,
    "admission": admission_part.KIND,
    "nodes": with_feed(nodes_part.kind()),
}


def problems(flags: Flagged) -> list[str]:
    """Return what is wrong with the flags, and with the files that they name. Blocking."""
    found: list[str] = []
    for name, own in flags.items():
        if isinstance(KINDS[name], PartKind):  # the webhook's server has upstream's own flags
            found += flag_table.problems(own)
    found += [text for name, own in flags.items() for text in KINDS[name].problems(own)]
    found += _differences(flags)
    if (reader := reader_of(flags)) and not found:
        if "adapter" not in flags:
            found += [f"{text}{_otherwise(flags)}" for text in adapter_flags.problems(reader)]
        if not found:
            found += precheck.problems(reader)
    return list(dict.fromkeys(found))


def reader_of(flags: Flagged) -> Flags | None:
    """Return the flags of whoever reads Prometheus first; None: nobody does."""
    for name, own in flags.items():
        kind = KINDS[name]
        if isinstance(kind, PartKind) and kind.reads_prometheus(own):
            return own
    return None


def _otherwise(flags: Flagged) -> str:
    if "hpa" not in flags or flags["hpa"].text("metrics-source") != "feed":
        return ""
    return " (or --metrics-source=api to ask the cluster's metrics APIs)"


def _differences(flags: Flagged) -> list[str]:
    """Return what is one thing in this process and was told differently to two parts."""
    readers = [name for name in flags if reader_of({name: flags[name]})]
    sizing = [name for name in ("recommender", "updater") if name in flags]
    feed = [flag.name for flag in _READERS]
    found = []
    for parts, names in (
        (readers, [name for name in feed if name not in _OF_EACH]),
        (sizing, ["vpa-object-namespace", "ignored-vpa-object-namespaces"]),
        ([name for name in flags if name != "admission"], ["kubeconfig"]),
    ):
        for name in names:
            told = {part: flags[part].values[name] for part in parts if name in flags[part].values}
            if len(set(map(str, told.values()))) > 1:
                found.append(
                    f"--{name} is one for {', '.join(told)} in this process: "
                    f"give it without a part's name"
                )
    return found
