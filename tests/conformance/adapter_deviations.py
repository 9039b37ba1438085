"""The deliberate differences of adapter.md section 12, as rules over any row of part C.

Each rule rewrites what the original answered into what we answer, from the row and the
fixture alone: nothing here knows the implementation. ``deviations.yaml`` lists the topics;
a rule whose topic is not listed there does not run.
"""

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from adapter.discovery import mapping
from podscale.core import quantity
from podscale.core.quantity import format_milli
from podscale.core.selectors import selector
from podscale.core.times.rfc3339 import rfc3339
from tests.conformance.adapter_world import ScriptedPrometheus, part_c_mapper
from tests.conformance.cases import deviations

LEFT_OUT = "-9223372036854775808m"
METRICS = "/apis/metrics.k8s.io/v1beta1/"


class Expected(NamedTuple):
    """What a row demands. ``body`` may be a function that checks the body instead."""

    status: int
    content_type: str
    body: Any
    calls: list[str]


class Case(NamedTuple):
    """A row and the world it was recorded in."""

    path: str
    options: Mapping[str, Any]
    prometheus: ScriptedPrometheus
    objects: Mapping[str, Any]  # of C.1, by kind
    mode: str = ""  # how Prometheus fails
    config: Mapping[str, Any] = {}  # the rules file
    asks: bool = True  # whether a request for this path comes to Prometheus at all


class Measured(NamedTuple):
    """A pod or node of metrics.k8s.io that has a number, as we show it."""

    key: tuple[str, str]  # namespace, name
    item: dict[str, Any]
    lacks: bool  # something is no number, or absent


Rule = Callable[[Case, Expected], Expected]


def cause_of_404(case: Case, expected: Expected) -> Expected:
    """A 404 of a metric names in its details the stage that lost it."""
    if expected.status == 404 and "could not find the metric" in str(expected.body):
        body = {**expected.body, "details": ANY_CAUSES}
        return expected._replace(body=body)
    return expected


def external_404_text(case: Case, expected: Expected) -> Expected:
    """The trailing blank for namespaces other than default is gone."""
    if expected.status == 404 and str(expected.body.get("message", "")).endswith(" for "):
        body = {**expected.body, "message": f"{expected.body['message']}namespaces"}
        return expected._replace(body=body)
    return expected


def not_a_number(case: Case, expected: Expected) -> Expected:
    """NaN, infinities and overflow are no values: left out of lists, 404 for one object."""
    items = expected.body.get("items") if isinstance(expected.body, dict) else None
    if expected.status != 200 or items is None or "metrics.k8s.io/" not in case.path:
        return expected
    if case.path.startswith(METRICS):
        return expected
    kept = [item for item in items if not _is_no_number(case, expected, item)]
    if len(kept) == len(items):
        return expected
    *scope, resource, name, metric = unquote(urlsplit(case.path).path).split("/")
    if name == "metrics" and scope[-1] == "namespaces":
        resource, name = "namespaces", resource  # the metric of a namespace
    if "external.metrics" in case.path or name == "*":
        return expected._replace(body={**expected.body, "items": kept})
    found = mapping.resolve(part_c_mapper(), *mapping.split(resource))
    resource = found.group_resource if found is not None else resource
    return expected._replace(
        status=404,
        body={
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"the server could not find the metric {metric} for {resource} {name}",
            "reason": "NotFound",
            "details": {"causes": [{"reason": "NotANumber", "message": ANY_TEXT}]},
            "code": 404,
        },
    )


def _is_no_number(case: Case, expected: Expected, item: Mapping[str, Any]) -> bool:
    if item.get("value") == LEFT_OUT:
        return True
    name = item.get("describedObject", {}).get("name")
    if name is None:
        return False
    values = [
        float(entry[1])
        for call in expected.calls
        if call.startswith("PROM ")
        for entry in _vector(case, call.removeprefix("PROM "))
        if name in entry[0].values()
    ]
    return bool(values) and not math.isfinite(values[-1])


def not_equals_echo(case: Case, expected: Expected) -> Expected:
    """``!=`` is echoed as NotIn instead of failing after the work is done."""
    if expected.status != 500 or "valid label selector operator" not in str(expected.body):
        return expected
    query = parse_qs(urlsplit(case.path).query)
    echo = echo_of(selector.parse(query["metricLabelSelector"][0]))

    def check(body: Any) -> bool:
        items = body["items"]
        shown = [i.get("selector", i.get("metric", {}).get("selector")) for i in items]
        return body["kind"] == "MetricValueList" and all(s == echo for s in shown)

    return expected._replace(status=200, body=check)


def echo_of(wanted: selector.Selector) -> dict[str, Any]:
    """Return the LabelSelector that is echoed: as upstream's, and ``!=`` as NotIn."""
    labels: dict[str, str] = {}
    expressions = []
    for one in wanted.requirements:
        if one.operator in ("=", "=="):
            labels[one.key] = one.values[0]
            continue
        operator = {"in": "In", "notin": "NotIn", "!=": "NotIn", "exists": "Exists"}
        expression: dict[str, Any] = {
            "key": one.key,
            "operator": operator.get(one.operator, "DoesNotExist"),
        }
        if one.values:
            expression["values"] = list(one.values)
        expressions.append(expression)
    return ({"matchLabels": labels} if labels else {}) | (
        {"matchExpressions": expressions} if expressions else {}
    )


def prometheus_failed(case: Case, expected: Expected) -> Expected:
    """A failing Prometheus is 500, 503 or 504 with its class; never 404, never an empty list."""
    status = _failure_of(case, expected)
    if status is None:
        return _with_class(expected)

    def check(body: Any) -> bool:
        cause = body["details"]["causes"][-1]
        return (
            body["kind"] == "Status"
            and body["code"] == status
            and re.fullmatch("[A-Z][A-Za-z]+", cause["reason"]) is not None
            and "boom" not in str(body)
        )

    return expected._replace(status=status, content_type="application/json", body=check)


def _with_class(expected: Expected) -> Expected:
    message = "Internal error occurred: unable to fetch metrics"
    if expected.status != 500 or expected.body.get("message") != message:
        return expected
    head = {key: value for key, value in expected.body.items() if key != "details"}

    def check(body: Any) -> bool:
        first, *classes = body["details"]["causes"]
        return (
            {key: value for key, value in body.items() if key != "details"} == head
            and [first] == expected.body["details"]["causes"]
            and all(re.fullmatch("[A-Z][A-Za-z]+", one["reason"]) for one in classes)
        )

    return expected._replace(body=check)


def _failure_of(case: Case, expected: Expected) -> int | None:
    if case.mode:
        if not case.asks:
            return None
        return {"422": 500, "400": 500, "hang": 504}.get(case.mode, 503)
    if not case.path.startswith(METRICS):
        return None
    statuses = [status for call in expected.calls if (status := _refusal(case, call)) is not None]
    # A namespace that fails affects itself only, unless nothing is left.
    return statuses[0] if statuses and not _measured(case, expected) else None


def _refusal(case: Case, call: str) -> int | None:
    answer = case.prometheus.raw(call.removeprefix("PROM ")) if "PROM" in call else None
    if isinstance(answer, dict) and answer.get("code", 200) != 200:
        return 500 if answer["code"] in (400, 422) else 503
    return None


def usage_values(case: Case, expected: Expected) -> Expected:
    """What is NaN, negative or absent is lacking; a pod or node with neither is left out.

    Pods and nodes that lack something are computed anew from the fixture, because upstream
    drops some of them and serves zeros for others; all others stay as the row has them.
    """
    path = urlsplit(case.path).path
    if not path.startswith(METRICS) or case.mode or _failure_of(case, expected) is not None:
        return expected
    if not any(call.startswith("PROM") for call in expected.calls):
        return expected
    found = _measured(case, expected)
    if not any(each.lacks for each in found):
        return expected
    parts = path.removeprefix(METRICS).split("/")
    resource, *name = parts[2:] if parts[0] == "namespaces" else parts
    if not name:
        return expected._replace(body=_list_body(expected, found, resource))
    kind = "NodeMetrics" if resource == "nodes" else "PodMetrics"
    body = {"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", **found[0].item}
    return expected._replace(status=200, body=body)


def _list_body(expected: Expected, found: Sequence[Measured], resource: str) -> Any:
    kind = f"{'Node' if resource == 'nodes' else 'Pod'}MetricsList"
    body = copy.deepcopy(expected.body)
    if isinstance(body, str):
        body = yaml.safe_load(body)
        assert body["kind"] == kind
    if body["kind"] == "Table":
        rows = {_key(row["object"]["metadata"]): row for row in body["rows"]}
        body["rows"] = [
            _row(each.item) if each.lacks else rows.get(each.key, {"absent": each.key})
            for each in found
        ]
    else:
        items = {_key(item["metadata"]): item for item in body["items"]}
        body["items"] = [
            each.item if each.lacks else items.get(each.key, {"absent": each.key}) for each in found
        ]
    return body


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cells": [item["metadata"]["name"], *_cells(item), item["window"]],
        "object": {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": item["metadata"],
        },
    }


def _key(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return metadata.get("namespace", ""), metadata["name"]


def _measured(case: Case, expected: Expected) -> list[Measured]:
    """Return the pods or nodes that have a number, by namespace and name."""
    failing = {_namespace(call) for call in expected.calls if _refusal(case, call) is not None}
    usage: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    times: dict[tuple[str, str], float] = {}
    for call in expected.calls:
        namespace, names = _namespace(call), _names_asked(call)
        if not call.startswith("PROM ") or namespace in failing:
            continue
        resource = "cpu" if "cpu" in call else "memory"
        for labels, text, at in _vector(case, call.removeprefix("PROM ")):
            key, value = (namespace, labels.get(names.label, "")), float(text)
            if key[1] not in names.values:
                continue
            part = usage.setdefault(key, {}).setdefault(labels.get("container", ""), {})
            if 0 <= value < 2**63 / 1000:
                part[resource] = int(value * 1000)
                times[key] = min(times.get(key, math.inf), at)
    found = []
    for key in sorted(times):
        parts = {name: amounts for name, amounts in sorted(usage[key].items()) if amounts}
        lacks = any(len(amounts) < 2 for amounts in usage[key].values())
        kind = "Pod" if key[0] else "Node"
        known = [o[2] for o in case.objects[kind] if ((o[0] or ""), o[1]) == key]
        if known:
            found.append(Measured(key, _item(key, known[0], parts, times[key]), lacks))
    return found


def _item(
    key: tuple[str, str],
    labels: Mapping[str, str],
    parts: Mapping[str, Mapping[str, int]],
    time_s: float,
) -> dict[str, Any]:
    namespace, name = key
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": "<now>"}
    if labels:
        metadata["labels"] = labels
    if namespace:
        metadata["namespace"] = namespace
    one: dict[str, Any] = {"metadata": metadata, "timestamp": rfc3339(time_s), "window": "5m0s"}
    usages = {part: _usage(amounts) for part, amounts in parts.items()}
    if namespace:
        one["containers"] = [{"name": n, "usage": u} for n, u in usages.items()]
    else:
        one["usage"] = usages[""]
    return one


class _Names(NamedTuple):
    label: str
    values: frozenset[str]


def _names_asked(call: str) -> _Names:
    for label in ("pod", "node"):
        match = re.search(rf'\b{label}=~?"([^"]+)"', call)
        if match:
            return _Names(label, frozenset(match[1].split("|")))
    return _Names("", frozenset())


def _namespace(call: str) -> str:
    match = re.search(r'\bnamespace="([^"]*)"', call)
    return match[1] if match else ""


def _usage(amounts: Mapping[str, int]) -> dict[str, str]:
    forms = {"cpu": "DecimalSI", "memory": "BinarySI"}
    return {name: format_milli(milli, forms[name]) for name, milli in sorted(amounts.items())}


def _cells(one: Mapping[str, Any]) -> list[str]:
    usages = [c["usage"] for c in one.get("containers", [])] or [one.get("usage", {})]
    cells = []
    for name, form in (("cpu", "DecimalSI"), ("memory", "BinarySI")):
        parts = [usage[name] for usage in usages if name in usage]
        total = sum(quantity.parse(part).milli for part in parts)
        cells.append(format_milli(total, form) if parts else "<unknown>")
    return cells


def last_series(case: Case, expected: Expected) -> Expected:
    """Of several series with one name the lexicographically last is asked for."""
    calls = expected.calls
    for rule in (*case.config.get("rules", ()), *case.config.get("externalRules", ())):
        if "$" in rule.get("name", {}).get("as", "$"):
            continue  # series of one query have names of their own
        names = sorted(s["__name__"] for s in case.prometheus.series(rule["seriesQuery"]))
        for name in names[:-1]:
            calls = [re.sub(rf"\b{name}\b", names[-1], call) for call in calls]
    return expected._replace(calls=calls)


def discovery(case: Case, expected: Expected) -> Expected:
    """v1beta2 is in the group document, and every group in the aggregated one."""
    body = expected.body
    if not isinstance(body, dict) or expected.status != 200:
        return expected
    if body.get("kind") in ("APIGroup", "APIGroupList"):
        made = copy.deepcopy(body)
        for group in made.get("groups", [made]):
            if group["name"] == "custom.metrics.k8s.io":
                name = f"{group['name']}/v1beta2"
                group["versions"].append({"groupVersion": name, "version": "v1beta2"})
            for address in group.get("serverAddressByClientCIDRs", []):
                address["serverAddress"] = ANY_TEXT  # the port is ours
        return expected._replace(body=made)
    if body.get("kind") == "APIGroupDiscoveryList":
        (metrics,) = body["items"]

        def check(found: Any) -> bool:
            groups = {g["metadata"]["name"]: g for g in found["items"]}
            head = {k: found[k] for k in ("kind", "apiVersion", "metadata")}
            return (
                head == {k: body[k] for k in head}
                and groups["metrics.k8s.io"] == metrics
                and {"custom.metrics.k8s.io", "external.metrics.k8s.io"} < set(groups)
            )

        return expected._replace(body=check)
    return expected


def health_checks(case: Case, expected: Expected) -> Expected:
    """The names of health checks are ours, in the index as well."""
    if "?verbose" in case.path and isinstance(expected.body, str):
        end = expected.body.splitlines()[-1]

        def check(found: Any) -> bool:
            *checks, last = found.splitlines()
            return last == end and all(re.match(r"\[\+\][-a-z/]+ ok", c) for c in checks)

        return expected._replace(body=check)
    if isinstance(expected.body, dict) and set(expected.body) == {"paths"}:
        wanted = {p for p in expected.body["paths"] if not _is_check(p)}

        def check_index(found: Any) -> bool:
            return wanted <= {p for p in found["paths"] if not _is_check(p)}

        return expected._replace(body=check_index)
    return expected


def _is_check(path: str) -> bool:
    return re.match(r"/(healthz|livez|readyz)/", path) is not None


def protobuf(case: Case, expected: Expected) -> Expected:
    """No group is encoded as protobuf: who takes nothing else gets 406."""
    accept = str(case.options.get("headers", {}).get("Accept", ""))
    if expected.content_type != "application/vnd.kubernetes.protobuf":
        return expected
    assert accept == expected.content_type

    def check(body: Any) -> bool:
        return bool(body["reason"] == "NotAcceptable" and body["code"] == 406)

    return expected._replace(status=406, content_type="application/json", body=check)


def _vector(case: Case, query: str) -> list[Any]:
    answer = case.prometheus.raw(query)
    return [list(entry) for entry in answer] if isinstance(answer, list) else []


class _Any:
    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self._kind) and bool(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<any {self._kind.__name__}>"


class _Causes(_Any):
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or set(other) != {"causes"}:
            return False
        (cause,) = other["causes"]
        is_token = re.fullmatch("[A-Z][A-Za-z]+", cause["reason"]) is not None
        return is_token and bool(cause["message"])

    __hash__ = None  # type: ignore[assignment]


ANY_TEXT = _Any(str)
ANY_CAUSES = _Causes(dict)

# In this order: a later rule sees what the earlier ones made.
RULES: Mapping[str, Rule] = {
    "last-series": last_series,
    "protobuf": protobuf,
    "discovery": discovery,
    "health-endpoints": health_checks,
    "not-equals-selector": not_equals_echo,
    "not-a-number": not_a_number,
    "metrics-values": usage_values,
    "prometheus-failure": prometheus_failed,
    "external-404-text": external_404_text,
    "cause-of-404": cause_of_404,
}


def deviating(case: Case, expected: Expected) -> tuple[Expected, list[str]]:
    """Return what we give where the original gave ``expected``, and by which rules."""
    applied = []
    for topic in deviations("adapter"):
        if callable(expected.body):  # a rule has said all there is to say
            break
        changed = RULES[topic](case, expected)
        if changed is not expected and changed != expected:
            applied.append(topic)
            expected = changed
    return expected, applied
