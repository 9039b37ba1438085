"""KEDA's triggers as metrics of an HPA, and as external rules where Prometheus answers them.

Follows KEDA's documented trigger fields (2.x). What a trigger says that has no equal here
is told, never dropped in silence; how it reaches Prometheus is ``connections``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from hpa.decide.api.options import read_schedules
from podscale.core import quantity
from podscale.feed.prover import tree as promql
from podscale.migrate.documents import Object, flag_at, map_at, text_at
from podscale.migrate.keda import queries
from podscale.migrate.outcome import ComparedMetric, Remark, RemarksOn

# What a prometheus trigger may set beside its query and threshold.
_LOST = {
    "metadata.namespace": "metadata.namespace (a query parameter for multi-tenant proxies): one "
    "connection serves all rules; run an adapter for each tenant",
    "metadata.activationThreshold": "activationThreshold {}: an HPA leaves zero as soon as the "
    "metric is above 0",
    "metadata.unsafeSsl": "unsafeSsl: give the CA instead (--prometheus-ca-file)",
    "metadata.awsRegion": "awsRegion {} signs requests (SigV4): put a signing proxy in between",
    "metadata.identityOwner": "identityOwner {} signs requests: put a signing proxy in between",
}
_DIFFERS = {
    "useCachedMetrics": "useCachedMetrics: values were up to pollingInterval old; here every "
    "series is read once for all, at most 5 s old (--feed-max-age)",
    "metadata.timeout": "timeout {} ms of this trigger: --prometheus-timeout is for all",
}
# What else the metadata of a trigger may hold, by its type.
_USAGE = "type value containerName activationValue"
_KEYS = {
    "cpu": _USAGE, "memory": _USAGE, "cron": "timezone start end desiredReplicas",
    "prometheus": "serverAddress query threshold metricName ignoreNullValues customHeaders "
    "queryParameters authModes cortexOrgID",
}  # fmt: skip
# Where false, or 0, is what happens here, too.
_NOTHING_IF_FALSE = ("metadata.activationThreshold", "metadata.unsafeSsl", "useCachedMetrics")
_UNSAFE = re.compile(r"[^a-z0-9]+")


class Converted(Struct, frozen=True):
    """One trigger; without a metric or a schedule it could not be carried over."""

    metric: Mapping[str, object] | None = None
    name: str = ""  # of the external metric
    rule: Mapping[str, object] | None = None
    query: str = ""
    source: Mapping[str, object] = {}  # how Prometheus is reached
    compared: ComparedMetric | None = None  # what history can be asked about
    schedule: Mapping[str, object] | None = None  # an entry of podscale.io/schedule


def convert(trigger: Object, name: str, on: RemarksOn) -> Converted:
    """Return what ``trigger`` becomes, ``name`` is its metric's; remarks and flags go to ``on``."""
    kind = text_at(trigger, "type")
    if kind in _TRIGGERS:
        for key in map_at(trigger, "metadata"):
            if key not in _KEYS[kind].split() and f"metadata.{key}" not in {**_LOST, **_DIFFERS}:
                on.lose(f"metadata.{key} of a {kind} trigger has no equal here")
        return _TRIGGERS[kind](trigger, name, on)
    on.lose(
        f"a trigger of type {kind!r} does not come from Prometheus: scrape an exporter of "
        "that system and scale by its series, or leave this ScaledObject to KEDA"
    )
    return Converted()


def external(
    name: str, query: str, aim: Mapping[str, str], silence_is_zero: bool = False
) -> Converted:
    """Return an external metric of the HPA, and the rule that answers ``query`` under its name.

    ``silence_is_zero``: KEDA's ignoreNullValues, on a query that may be empty.
    """
    try:
        series_query = queries.series_query(promql.parse(query))
    except promql.NotPromql:
        series_query = queries.ALWAYS
    rule = {
        "seriesQuery": series_query,
        "resources": {"namespaced": False},
        "name": {"matches": "^.*$", "as": name.replace("$", "$$")},
        "metricsQuery": query,
    }
    metric = {"type": "External", "external": {"metric": {"name": name}, "target": aim}}
    compared = None
    if average := aim.get("averageValue"):
        per_replica = quantity.parse(average).milli / 1000
        compared = ComparedMetric(name, query, per_replica, silence_is_zero)
    return Converted(metric, name, rule, query, compared=compared)


def target(metric_type: str, threshold: str) -> dict[str, str]:
    """Return a target; raises ``quantity.QuantityError``."""
    parsed = quantity.parse(threshold)
    if parsed.nano <= 0:
        raise quantity.QuantityError(threshold, "a target must be above 0")
    amount = str(parsed)
    if metric_type == "Value":
        return {"type": "Value", "value": amount}
    return {"type": "AverageValue", "averageValue": amount}


def slug(*words: str) -> str:
    return "-".join(_UNSAFE.sub("-", word.lower()).strip("-") for word in words if word)


def _resource(trigger: Object, _name: str, on: RemarksOn) -> Converted:
    kind = text_at(trigger, "type")
    # metadata.type is the older spelling of metricType.
    form = text_at(trigger, "metricType") or text_at(trigger, "metadata", "type") or "Utilization"
    value = text_at(trigger, "metadata", "value")
    try:
        aim: dict[str, object] = {**target("AverageValue", value)}
        if form == "Utilization":
            aim = {"type": form, "averageUtilization": int(value)}
    except ValueError:
        on.lose(f"metadata.value {value!r} of a {kind} trigger is no target")
        return Converted()
    if kind == "cpu" and value.endswith("i"):
        on.differ(f"metadata.value {value} of a cpu trigger is in bytes: write cores, like 500m")
    if text_at(trigger, "metadata", "activationValue"):
        on.lose(f"activationValue of the {kind} trigger: usage alone never scales from or to zero")
    if container := text_at(trigger, "metadata", "containerName"):
        about = {"name": kind, "container": container, "target": aim}
        return Converted({"type": "ContainerResource", "containerResource": about})
    return Converted({"type": "Resource", "resource": {"name": kind, "target": aim}})


def _prometheus(trigger: Object, name: str, on: RemarksOn) -> Converted:
    query = text_at(trigger, "metadata", "query").strip()
    if not query or "<<" in query:
        on.lose("the query contains <<, which opens an action in a rule" if query else "no query")
        return Converted()
    threshold = text_at(trigger, "metadata", "threshold")
    try:
        aim = target(text_at(trigger, "metricType"), threshold)
    except ValueError:
        on.lose(f"threshold {threshold!r} is no number above 0")
        return Converted(query=query)
    tree = None
    try:
        tree = promql.parse(query)
    except promql.NotPromql as error:
        on.differ(
            f"the query cannot be read here ({error}): it is carried over as it stands. Try it on "
            "Prometheus's graph page first"
        )
    written = text_at(trigger, "metadata", "ignoreNullValues")
    ignores_null = not written or flag_at(trigger, "metadata", "ignoreNullValues") is True
    silence_is_zero = ignores_null and not (tree and queries.has_default(tree))
    if silence_is_zero:
        on.differ(
            "ignoreNullValues is true (KEDA's default): an empty answer, NaN or Inf counted as 0 "
            "and scaled in. Here silence is not zero, the size is held. Where no series really "
            "means none, add `or vector(0)` to the query yourself and migrate again"
        )
    for settings, say in ((_LOST, on.lose), (_DIFFERS, on.differ)):
        for path, text in settings.items():
            value = text_at(trigger, *path.split("."))
            is_off = path in _NOTHING_IF_FALSE and flag_at(trigger, *path.split(".")) is False
            if value and not is_off:
                say(text.format(value))
    if tree and not queries.is_single(tree):
        on.differ("the query may return several elements: KEDA fails then, an HPA adds them up")
    if tree and queries.looks_back_ms(tree) > queries.DISCOVERED_MS:
        on.differ(
            "the query looks back further than series are discovered (10 min by default, "
            "--metrics-max-age): seriesQuery is `up`, so the metric stays listed while no new "
            "sample is scraped"
        )
    return external(name, query, aim, silence_is_zero)


def _cron(trigger: Object, _name: str, on: RemarksOn) -> Converted:
    timezone, start, end, replicas = (
        text_at(trigger, "metadata", key).replace("?", "*")
        for key in ("timezone", "start", "end", "desiredReplicas")
    )
    schedule: dict[str, object] = {"start": start, "end": end, "timeZone": timezone}
    schedule["minReplicas"] = int(replicas) if replicas.isdecimal() else replicas
    problems: list[str] = []
    read_schedules(json.dumps([schedule]), None, problems, [])
    if problems:
        on.lose(f"the cron trigger ({start} to {end}): {problems[0].partition('entry 0: ')[2]}")
        return Converted()
    return Converted(schedule=schedule)


_TRIGGERS: Mapping[str, Callable[[Object, str, RemarksOn], Converted]] = {
    "cpu": _resource, "memory": _resource, "prometheus": _prometheus, "cron": _cron,
}  # fmt: skip


def constant(name: str) -> Converted:
    """Return a metric that asks for one replica: an HPA without any would scale by its CPU."""
    return external(name, "vector(1)", target("AverageValue", "1"))


def clashes(rules: Sequence[Mapping[str, object]]) -> list[Remark]:
    """Return the external metrics that several triggers would share, by their ``rules``.

    Namespace, ScaledObject and trigger make the name; ``a/b-c`` and ``a-b/c`` make the same.
    """
    queries: dict[str, set[str]] = {}
    for each in rules:
        queries.setdefault(text_at(each, "name", "as"), set()).add(text_at(each, "metricsQuery"))
    return [
        Remark(
            f"external metric {name}",
            f"{len(found)} triggers come to this name, and the last rule would answer for all of "
            "them: give one of the triggers a name (triggers[].name), and ask again",
        )
        for name, found in queries.items()
        if len(found) > 1
    ]
