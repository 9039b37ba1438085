"""KEDA's triggers as metrics of an HPA, and as external rules where Prometheus answers them.

Follows KEDA's documented trigger fields (2.x). What a trigger says that has no equal here
is told, never dropped in silence. A trigger has a connection of its own (its address, headers and
TriggerAuthentication become flags), an adapter has one for all its rules; where triggers contradict
each other, that is told as well.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from hpa.decide.api.options import read_schedules
from podscale.core import quantity
from podscale.feed.prover import tree as promql
from podscale.feed.prover.printer import printed
from podscale.migrate.documents import Object, at, flag_at, list_at, map_at, name_of, text_at
from podscale.migrate.outcome import ComparedMetric, Remark, RemarksOn

_ALWAYS = "up"  # a series that every Prometheus has: discovery needs one
_DEFAULTS = ("vector", "absent", "absent_over_time")
# What a prometheus trigger may set beside its query and threshold.
_LOST = {
    "metadata.namespace": "metadata.namespace (a query parameter for multi-tenant proxies): one "
    "connection serves all rules; run an adapter for each tenant",
    "metadata.activationThreshold": "activationThreshold {}: nothing is scaled from or to zero "
    "here",
    "metadata.unsafeSsl": "unsafeSsl: give the CA instead (--prometheus-ca-file)",
}
_DIFFERS = {
    "useCachedMetrics": "useCachedMetrics: values were up to pollingInterval old; here every "
    "series is read once for all, at most 5 s old (--feed-max-age)",
    "metadata.timeout": "timeout {} ms of this trigger: --prometheus-timeout is for all",
}
# Where false, or 0, is what happens here, too.
_NOTHING_IF_FALSE = ("metadata.activationThreshold", "metadata.unsafeSsl", "useCachedMetrics")
Authentications = Mapping[tuple[str, str], Object]  # by namespace ("": cluster-wide) and name

_IDENTITIES = ("aws", "aws-eks", "azure-workload", "gcp")
_ELSEWHERE = ("env", "hashiCorpVault", "azureKeyVault", "awsSecretManager", "gcpSecretManager",
              "configMapTargetRef")  # fmt: skip
_FILES = {
    "bearerToken": "--prometheus-token-file",
    "ca": "--prometheus-ca-file",
    "cert": "--prometheus-client-tls-cert-file",
    "key": "--prometheus-client-tls-key-file",
}
_BASIC = ("username", "password")
_UNSAFE = re.compile(r"[^a-z0-9]+")


class Converted(Struct, frozen=True):
    """One trigger; without a metric or a schedule it could not be carried over."""

    metric: Mapping[str, object] | None = None
    name: str = ""  # of the external metric
    rule: Mapping[str, object] | None = None
    query: str = ""
    compared: ComparedMetric | None = None  # what history can be asked about
    schedule: Mapping[str, object] | None = None  # an entry of podscale.io/schedule


def convert(trigger: Object, name: str, on: RemarksOn) -> Converted:
    """Return what ``trigger`` becomes, ``name`` is its metric's; remarks and flags go to ``on``."""
    kind = text_at(trigger, "type")
    if kind in _TRIGGERS:
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
    rule = {
        "seriesQuery": _series_query(query),
        "resources": {"namespaced": False},
        "name": {"matches": "^.*$", "as": name.replace("$", "$$")},
        "metricsQuery": query,
    }
    metric = {"type": "External", "external": {"metric": {"name": name}, "target": aim}}
    compared = None
    if average := aim.get("averageValue"):
        per_replica = quantity.parse(average).milli / 1000
        compared = ComparedMetric(name, query, per_replica, silence_is_zero)
    return Converted(metric, name, rule, query, compared)


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
    if text_at(trigger, "metadata", "activationValue"):
        on.lose(f"activationValue of the {kind} trigger: nothing is scaled to zero here")
    if container := text_at(trigger, "metadata", "containerName"):
        about = {"name": kind, "container": container, "target": aim}
        return Converted({"type": "ContainerResource", "containerResource": about})
    return Converted({"type": "Resource", "resource": {"name": kind, "target": aim}})


def _prometheus(trigger: Object, name: str, on: RemarksOn) -> Converted:
    query = text_at(trigger, "metadata", "query").strip()
    if "<<" in query:
        on.lose("the query contains <<, which opens an action in a rule")
        return Converted()
    threshold = text_at(trigger, "metadata", "threshold")
    try:
        tree = promql.parse(query)
        aim = target(text_at(trigger, "metricType"), threshold)
    except promql.NotPromql as error:
        on.lose(f"the query does not parse: {error}")
        return Converted()
    except ValueError:
        on.lose(f"threshold {threshold!r} is no number above 0")
        return Converted(query=query)
    written = text_at(trigger, "metadata", "ignoreNullValues")
    ignores_null = not written or flag_at(trigger, "metadata", "ignoreNullValues") is True
    silence_is_zero = ignores_null and not _has_default(tree)
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
    if not _is_single(tree):
        on.differ("the query may return several elements: KEDA fails then, an HPA adds them up")
    on.outcome.flags += _flags(trigger)
    return external(name, query, aim, silence_is_zero)


def _flags(trigger: Object) -> list[str]:
    address = text_at(trigger, "metadata", "serverAddress")
    extra = text_at(trigger, "metadata", "queryParameters")
    found = []
    if address:
        pairs = "&".join(pair.strip() for pair in extra.split(",") if pair.strip())
        found.append(f"--prometheus-url={address}{f'?{pairs}' if pairs else ''}")
        if pairs:
            found.append("--prometheus-verb=POST")  # parameters of the URL survive with POST only
    headers = text_at(trigger, "metadata", "customHeaders")
    found += [f"--prometheus-header={pair.strip()}" for pair in headers.split(",") if pair.strip()]
    return found


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


def _series_query(query: str) -> str:
    tree = promql.parse(query)
    found = next(promql.selectors(tree), None)
    # A query with a default (``or vector(0)``, ``absent``) answers while its series are not there,
    # and is asked then.
    calls = (each for each in promql.walk(tree) if isinstance(each, promql.FunctionCall))
    if found is None or any(each.function in _DEFAULTS for each in calls):
        return _ALWAYS
    return printed(structs.replace(found, range_ms=None, offset_ms=0, at=None))


def _has_default(tree: promql.Node) -> bool:
    """Return whether the query ends in ``or vector(…)``: it is never empty."""
    return isinstance(tree, promql.Binary) and tree.op == "or" and _is_constant(tree.right)


def _is_constant(node: promql.Node) -> bool:
    return isinstance(node, promql.FunctionCall) and node.function == "vector"


def _is_single(tree: promql.Node) -> bool:
    if not promql.is_vector(tree) or _is_constant(tree):
        return True
    if isinstance(tree, promql.Aggregation):
        return tree.clause == "by" and not tree.labels and tree.op not in ("topk", "bottomk")
    below = [child for child in promql.children(tree) if promql.is_vector(child)]
    return bool(below) and all(map(_is_single, below))


def authentications(manifests: Sequence[Object]) -> dict[tuple[str, str], Object]:
    """Return the TriggerAuthentications by namespace ("" for cluster-wide ones) and name."""
    found = {}
    for each in manifests:
        kind = text_at(each, "kind")
        if kind in ("TriggerAuthentication", "ClusterTriggerAuthentication"):
            namespace, name = name_of(each)
            found["" if kind.startswith("Cluster") else namespace, name] = each
    return found


def credentials(trigger: Object, namespace: str, known: Authentications, on: RemarksOn) -> None:
    """Add what the ``authenticationRef`` of a trigger in ``namespace`` becomes to ``on``."""
    reference = map_at(trigger, "authenticationRef")
    if not reference:
        return
    is_cluster = text_at(reference, "kind") == "ClusterTriggerAuthentication"
    name = text_at(reference, "name")
    found = known.get(("" if is_cluster else namespace, name))
    if found is None:
        on.lose(f"the TriggerAuthentication {name} is not in the input")
        return
    identity = text_at(found, "spec", "podIdentity", "provider")
    if identity in _IDENTITIES:
        on.lose(f"podIdentity {identity} of {name}: put a signing proxy in between")
    for source in _ELSEWHERE:
        if at(found, "spec", source):
            on.lose(f"{source} of {name}: mount the credentials as files instead")
    for secret in list_at(found, "spec", "secretTargetRef"):
        parameter, held = text_at(secret, "parameter"), text_at(secret, "name")
        if parameter in _FILES:
            where = f"/etc/prometheus-credentials/{held}"
            on.outcome.flags.append(f"{_FILES[parameter]}={where}/{text_at(secret, 'key')}")
            on.differ(
                f"the Secret {held} ({parameter} of {name}) must be mounted into podscale at "
                f"{where}"
            )
        elif parameter in _BASIC:
            on.lose(
                f"{parameter} of {name}: write basic authentication into a kubeconfig and give "
                "it with --prometheus-auth-config"
            )
        else:
            on.lose(f"{parameter} of {name} has no equal here")


def contradictions(flags: Sequence[str]) -> list[Remark]:
    """Return what the triggers' flags ask for that one adapter cannot have at once."""
    given: dict[str, set[str]] = {}
    for each in flags:
        name, _, value = each.partition("=")
        if name == "--prometheus-header":
            header, _, value = value.partition("=")
            name = f"{name} {header.strip().title()}"
        given.setdefault(name, set()).add(value)
    found = []
    for name, values in given.items():
        if len(values) < 2:
            continue
        shown = ", ".join(sorted(values))
        if name == "--prometheus-url":
            text = (
                f"the triggers ask {len(values)} servers ({shown}), and an adapter asks one: put "
                "one query front before them (Thanos, Mimir), or run one adapter per server"
            )
        else:
            text = (
                f"the triggers need {len(values)} values of {name} ({shown}), and an adapter has "
                "one for all its rules: run one adapter for each"
            )
        found.append(Remark("Prometheus", text))
    return found


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
