"""Where we differ from upstream's VPA on purpose, as rules over any known defect.

Each rule says of which cases it speaks (a kind and a condition on the inputs) and rewrites
what upstream gave into what we give, as far as that follows from the case; the rest of
``expected`` stays. ``deviations.yaml`` lists the rules and their reasons.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from podscale.core import quantity
from tests.conformance.cases import Case, deviations
from tests.conformance.vpa_cases import KINDS
from tests.conformance.vpa_refused import without_refused
from tests.conformance.vpa_shared import Given, Json

_KNOWN_OWNERS = frozenset(
    ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Deployment")
)
_BOUNDS = ("lowerBound", "target", "uncappedTarget", "upperBound")


class Rule(NamedTuple):
    """A deliberate difference."""

    kinds: tuple[str, ...]
    speaks_of: Callable[[Json], bool]  # of these inputs
    rewritten: Callable[[Json, Json], Json]  # inputs, upstream's expected → ours


def rule_of(case: Case) -> str | None:
    """Return the name of the rule that speaks of a case; only known defects have one."""
    if case["compat"] != "known_defect":
        return None
    for name in deviations("vpa"):
        rule = RULES[name]
        if case["kind"] in rule.kinds and rule.speaks_of(Given(case["inputs"])):
            return name
    return None


def expected_of(case: Case) -> Json:
    """Return what we give for a case; None where upstream gives nothing to compare with."""
    name = rule_of(case)
    if name is None:
        if "upstream_panics" in case["expected"]:
            return None
        return without_refused(case["kind"], case["inputs"], case["expected"])
    inputs, expected = Given(case["inputs"]), copy.deepcopy(case["expected"])
    return RULES[name].rewritten(inputs, expected)


def _hides_by_zero(i: Json) -> bool:
    return any(op["op"] == "memory" and not op["v"] for op in i["ops"])


def _without_zeros(i: Json, e: Json) -> Json:
    # A zero is replaced like any peak: percentiles and the open window are those of the same
    # samples, the zeros being the smallest that is none.
    ops = [{**op, "v": 1} if op["op"] == "memory" and not op["v"] else op for op in i["ops"]]
    other = KINDS["container_samples"](Given({**i, "ops": ops}), Given(e))
    calls = [{**call, "v": 0} if call["v"] == 1 else call for call in other["histogram_calls"]]
    changed = {key: other[key] for key in ("memory_percentiles", "max_memory_peak", "window_end")}
    return {**e, **changed, "histogram_calls": calls}


def _measured(container: Json) -> set[str]:
    found = {entry["resource"] for entry in container["series"] if entry["values"]}
    return found | ({"memory"} if container.get("ooms") else set())


def _is_unmeasured(i: Json) -> bool:
    return any("cpu" not in _measured(container) for container in i["containers"])


def _published(i: Json, e: Json) -> Json:
    """D7: nothing is published of what was never measured. D6: memory has its own samples."""
    measured = {container["name"]: _measured(container) for container in i["containers"]}
    amounts = {}
    for name, bounds in e["amounts"].items():
        if measured[name]:
            amounts[name] = {bound: _only(of, measured[name]) for bound, of in bounds.items()}
    entries = []
    for entry in e["containerRecommendations"]:
        name = entry["containerName"]
        if measured[name]:
            kept = {b: _only(entry[b], measured[name]) for b in _BOUNDS if b in entry}
            entries.append({"containerName": name, **kept})
    e = {**e, "amounts": amounts, "containerRecommendations": entries}
    for container in i["containers"]:
        if measured[container["name"]] == {"memory"}:
            _count_memory(container, e)
    return e


def _only(amounts: Json, resources: set[str]) -> Json:
    return {name: amount for name, amount in amounts.items() if name in resources}


def _count_memory(container: Json, e: Json) -> None:
    # Confidence comes from the samples of memory; the bounds, narrower by it, would need the
    # percentiles, which the case does not show.
    name, series = container["name"], container["series"]
    if series:
        count = len(series[0]["values"]) * series[0].get("repeat", 1)
        days = (count - 1) * series[0]["step_s"] / 86400
        e["confidence"][name] = min(days, count / 1440)
    for bound in ("lowerBound", "upperBound"):
        del e["amounts"][name][bound]
        for entry in e["containerRecommendations"]:
            if entry["containerName"] == name:
                del entry[bound]


def _humanized(i: Json, e: Json) -> Json:
    def whole(amounts: Json) -> Json:
        memory = amounts.get("memory")
        if memory is None:
            return amounts
        return {**amounts, "memory": str(quantity.parse(str(memory)).value)}

    entries = [
        {key: whole(value) if isinstance(value, dict) else value for key, value in entry.items()}
        for entry in e["containerRecommendations"]
    ]
    return {**e, "containerRecommendations": entries}


def _expires_by_its_last_sample(i: Json, e: Json) -> Json:
    window_s = i["memory_aggregation_interval_s"] * i["memory_aggregation_interval_count"]
    return {**e, "state_deleted": i["sample_age_s"] >= window_s}


def _targets(i: Json, resource: str) -> Iterator[tuple[str, int]]:
    for entry in i["vpa"]["status"]["recommendation"]["containerRecommendations"]:
        if resource in (entry.get("target") or {}):
            yield entry["containerName"], quantity.from_wire(entry["target"][resource]).value


def _has_memory_minimum(i: Json) -> bool:
    minimum = ((i["pod_limit_range"] or {}).get("min") or {}).get("memory")
    targets = dict(_targets(i, "memory"))
    lacking = quantity.from_wire(minimum).value > sum(targets.values()) if minimum else False
    return lacking and bool(targets)


def _rounded_up(i: Json, e: Json) -> Json:
    minimum = quantity.from_wire(i["pod_limit_range"]["min"]["memory"]).value
    targets = dict(_targets(i, "memory"))
    for entry in e["recommendation"]["containerRecommendations"]:
        share = Fraction(targets[entry["containerName"]], sum(targets.values()))
        entry["target"]["memory"] = str(math.ceil(minimum * share))
    return e


def _off(i: Json) -> set[int]:
    policies = (i["vpa"]["spec"].get("resourcePolicy") or {}).get("containerPolicies") or ()
    off = {policy["containerName"] for policy in policies if policy.get("mode") == "Off"}
    containers = i["pod"]["spec"]["containers"]
    return {index for index, container in enumerate(containers) if container["name"] in off}


def _left_alone(i: Json, e: Json) -> Json:
    off = _off(i)
    prefixes = tuple(f"/spec/containers/{index}/" for index in off)
    patches = [entry for entry in e["patches"] if not entry["path"].startswith(prefixes)]
    for entry in patches:
        if entry["path"].endswith("/vpaUpdates"):
            phrases = entry["value"]["containers"]
            entry["value"]["containers"] = {k: v for k, v in phrases.items() if int(k) not in off}
    return {**e, "patches": patches}


def _has_unmanaged(i: Json) -> bool:
    return any(pod.get("owner") == "none" for pod in i["pods"])


def _untouched(i: Json, e: Json) -> Json:
    never = {
        "can_evict": False,
        "evict": False,
        "in_place": False,
        "can_in_place": "InPlaceDeferred",
    }
    results = [
        never[op["op"]] if i["pods"][op["pod"]].get("owner") == "none" else result
        for op, result in zip(i["ops"], e["results"], strict=True)
    ]
    return {**e, "results": results}


def _as_of_a_known_kind(i: Json, e: Json) -> Json:
    return KINDS["disruption_sequence"](Given({**i, "owner_kind": "ReplicaSet"}), Given(e))


RULES: Mapping[str, Rule] = {
    "zero-peak": Rule(("container_samples",), _hides_by_zero, _without_zeros),
    "never-measured": Rule(("recommendation",), _is_unmeasured, _published),
    "whole-bytes": Rule(("recommendation",), lambda i: bool(i["humanize_memory"]), _humanized),
    "memory-samples-count": Rule(
        ("aggregate_gc",), lambda i: i["sample"] == "memory", _expires_by_its_last_sample
    ),
    "pod-memory-minimum": Rule(("capping",), _has_memory_minimum, _rounded_up),
    "mode-off": Rule(("admission_patch",), lambda i: bool(_off(i)), _left_alone),
    "unmanaged-pod": Rule(("disruption_sequence",), _has_unmanaged, _untouched),
    "owner-of-another-kind": Rule(
        ("disruption_sequence",),
        lambda i: i["owner_kind"] not in _KNOWN_OWNERS,
        _as_of_a_known_kind,
    ),
    "deferred-in-place": Rule(
        ("updater_mode_dispatch",),
        lambda i: (i["update_mode"], i["in_place_decision"]) == ("InPlace", "InPlaceDeferred"),
        lambda _, e: {**e, "in_place_attempts": 0},
    ),
}
