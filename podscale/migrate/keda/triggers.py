"""KEDA's triggers as metrics of an HPA, and as external rules where Prometheus answers them.

Follows KEDA's documented trigger fields (2.x). What a trigger says that has no equal here
is told, never dropped in silence.
"""

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from hpa.decide.api.schedules import read_schedules
from podscale.core import quantity
from podscale.feed.prover.printer import printed
from podscale.feed.prover.tree import (
    Aggregation,
    Binary,
    FunctionCall,
    Node,
    NotPromql,
    VectorSelector,
    children,
    is_vector,
    parse,
)
from podscale.migrate.documents import Object, is_true_at, text_at

_ALWAYS = "up"  # a series that every Prometheus has: discovery needs one
_DEFAULTS = ("vector", "absent", "absent_over_time")
_RESOURCES = ("cpu", "memory")
_UNSAFE = re.compile(r"[^a-z0-9]+")


class Converted(Struct, frozen=True):
    """One trigger; without a metric or a schedule it could not be carried over."""

    metric: Mapping[str, object] | None
    name: str = ""  # of the external metric
    rule: Mapping[str, object] | None = None
    query: str = ""
    silence_is_zero: bool = False  # ignoreNullValues, on a query that may be empty
    flags: Sequence[str] = ()
    is_composite: bool = False
    lost: Sequence[str] = ()
    differs: Sequence[str] = ()
    schedule: Mapping[str, object] | None = None  # an entry of podscale.io/schedule


def convert(trigger: Object, metric_name: str) -> Converted:
    """Return what ``trigger`` becomes; ``metric_name`` is used where it needs a name."""
    kind = text_at(trigger, "type")
    if kind in _RESOURCES:
        return _resource(trigger, kind)
    if kind == "prometheus":
        return _prometheus(trigger, metric_name)
    if kind == "cron":
        return _cron(trigger)
    return Converted(
        None,
        lost=[
            (
                f"a trigger of type {kind!r} does not come from Prometheus: scrape an exporter of "
                "that system and scale by its series, or leave this ScaledObject to KEDA"
            )
        ],
    )


def rule(name: str, query: str) -> dict[str, object]:
    """Return the external rule that answers ``query`` under ``name``."""
    return {
        "seriesQuery": _series_query(query),
        "resources": {"namespaced": False},
        "name": {"matches": "^.*$", "as": name.replace("$", "$$")},
        "metricsQuery": query,
    }


def external(name: str, target: Mapping[str, object]) -> dict[str, object]:
    """Return the HPA's metric."""
    return {"type": "External", "external": {"metric": {"name": name}, "target": dict(target)}}


def target(metric_type: str, threshold: str) -> dict[str, object]:
    """Return a target; raises ``quantity.QuantityError``."""
    parsed = quantity.parse(threshold)
    if parsed.nano <= 0:
        raise quantity.QuantityError(threshold, "a target must be above 0")
    amount = str(parsed)
    if metric_type == "Value":
        return {"type": "Value", "value": amount}
    return {"type": "AverageValue", "averageValue": amount}


def slug(*words: str) -> str:
    """Return a metric name made of ``words``."""
    return "-".join(_UNSAFE.sub("-", word.lower()).strip("-") for word in words if word)


def _resource(trigger: Object, kind: str) -> Converted:
    # metadata.type is the older spelling of metricType.
    form = text_at(trigger, "metricType") or text_at(trigger, "metadata", "type") or "Utilization"
    value = text_at(trigger, "metadata", "value")
    container = text_at(trigger, "metadata", "containerName")
    try:
        aim = target("AverageValue", value)
        if form == "Utilization":
            aim = {"type": form, "averageUtilization": int(value)}
    except ValueError:
        return Converted(None, lost=[f"metadata.value {value!r} of a {kind} trigger is no target"])
    lost = []
    if text_at(trigger, "metadata", "activationValue"):
        lost.append(f"activationValue of the {kind} trigger: nothing is scaled to zero here")
    if container:
        about: dict[str, object] = {"name": kind, "container": container, "target": aim}
        return Converted({"type": "ContainerResource", "containerResource": about}, lost=lost)
    return Converted({"type": "Resource", "resource": {"name": kind, "target": aim}}, lost=lost)


def _prometheus(trigger: Object, name: str) -> Converted:
    query = text_at(trigger, "metadata", "query").strip()
    if "<<" in query:
        return Converted(None, lost=["the query contains <<, which opens an action in a rule"])
    try:
        tree = parse(query)
    except NotPromql as error:
        return Converted(None, lost=[f"the query does not parse: {error}"])
    threshold = text_at(trigger, "metadata", "threshold")
    try:
        aim = target(text_at(trigger, "metricType"), threshold)
    except ValueError:
        return Converted(None, query=query, lost=[f"threshold {threshold!r} is no number above 0"])
    lost, differs = _prometheus_settings(trigger, has_default=_has_default(tree))
    if not _is_single(tree):
        differs.append(
            "the query may return several elements: KEDA fails then, an HPA adds them up"
        )
    silence_is_zero = _ignores_null(trigger) and not _has_default(tree)
    return Converted(
        external(name, aim),
        name,
        rule(name, query),
        query,
        silence_is_zero,
        _flags(trigger),
        lost=lost,
        differs=differs,
    )


def _prometheus_settings(trigger: Object, *, has_default: bool) -> tuple[list[str], list[str]]:
    lost, differs = [], []
    if text_at(trigger, "metadata", "namespace"):
        lost.append(
            "metadata.namespace (a query parameter for multi-tenant proxies): one connection "
            "serves all rules; run an adapter for each tenant"
        )
    activation = text_at(trigger, "metadata", "activationThreshold")
    if activation and activation != "0":
        lost.append(f"activationThreshold {activation}: nothing is scaled from or to zero here")
    if _ignores_null(trigger) and not has_default:
        differs.append(
            "ignoreNullValues is true (KEDA's default): an empty answer, NaN or Inf counted as 0 "
            "and scaled in. Here silence is not zero, the size is held. Where no series really "
            "means none, add `or vector(0)` to the query yourself and migrate again"
        )
    if is_true_at(trigger, "useCachedMetrics"):
        differs.append(
            "useCachedMetrics: values were up to pollingInterval old; here every series is read "
            "once for all, at most 5 s old (--feed-max-age)"
        )
    if is_true_at(trigger, "metadata", "unsafeSsl"):
        lost.append("unsafeSsl: give the CA instead (--prometheus-ca-file)")
    timeout = text_at(trigger, "metadata", "timeout")
    if timeout:
        differs.append(f"timeout {timeout} ms of this trigger: --prometheus-timeout is for all")
    return lost, differs


def _ignores_null(trigger: Object) -> bool:
    written = text_at(trigger, "metadata", "ignoreNullValues")
    return not written or is_true_at(trigger, "metadata", "ignoreNullValues")


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


def _cron(trigger: Object) -> Converted:
    words = {
        key: text_at(trigger, "metadata", key).replace("?", "*")
        for key in ("timezone", "start", "end", "desiredReplicas")
    }
    schedule: dict[str, object] = {"start": words["start"], "end": words["end"]}
    schedule["timeZone"] = words["timezone"]
    replicas = words["desiredReplicas"]
    schedule["minReplicas"] = int(replicas) if replicas.isdecimal() else replicas
    problems: list[str] = []
    read_schedules(json.dumps([schedule]), None, problems, [])
    if problems:
        why = problems[0].partition("entry 0: ")[2]
        return Converted(
            None, lost=[f"the cron trigger ({words['start']} to {words['end']}): {why}"]
        )
    return Converted(None, schedule=schedule)


def constant(name: str) -> Converted:
    """Return a metric that asks for one replica: an HPA without any would scale by its CPU."""
    query = "vector(1)"
    metric = external(name, {"type": "AverageValue", "averageValue": "1"})
    return Converted(metric, name, rule(name, query), query)


def _series_query(query: str) -> str:
    tree = parse(query)
    found = _first_selector(tree)
    # A query with a default answers while its series are not there, and is asked then.
    if found is None or _answers_alone(tree):
        return _ALWAYS
    return printed(structs.replace(found, range_ms=None, offset_ms=0, at=None))


def _answers_alone(node: Node) -> bool:
    """Return whether there may be an answer without a series: ``or vector(0)``, ``absent``."""
    if isinstance(node, FunctionCall) and node.function in _DEFAULTS:
        return True
    return any(map(_answers_alone, children(node)))


def _first_selector(node: Node) -> VectorSelector | None:
    if isinstance(node, VectorSelector):
        return node
    return next((s for child in children(node) if (s := _first_selector(child))), None)


def _has_default(tree: Node) -> bool:
    """Return whether the query ends in ``or vector(…)``: it is never empty."""
    return isinstance(tree, Binary) and tree.op == "or" and _is_constant(tree.right)


def _is_constant(node: Node) -> bool:
    return isinstance(node, FunctionCall) and node.function == "vector"


def _is_single(tree: Node) -> bool:
    if not is_vector(tree) or _is_constant(tree):
        return True
    if isinstance(tree, Aggregation):
        return tree.clause == "by" and not tree.labels and tree.op not in ("topk", "bottomk")
    below = [child for child in children(tree) if is_vector(child)]
    return bool(below) and all(map(_is_single, below))
