"""Whatever VPAs, pods, LimitRanges and annotations say: no patch that the API server refuses.

The rules are written down here a second time, on the JSON of the patched pod, from
``pkg/apis/core/validation`` and ``plugin/pkg/admission/limitranger`` of Kubernetes 1.37.
"""

import copy
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from podscale.core.quantity import NANO, Quantity, parse
from podscale.kube.objects.vpa import LimitRangeItem, Vpa, decode
from podscale.sandbox.objects import patch as json_patch
from tests.pods import pod_of
from vpa.admission.patches.boost import ANNOTATION_PREFIX
from vpa.admission.patches.patch import (
    BoostSettings,
    PatchEntry,
    admission_patch,
    resize_patch,
)
from vpa.admission.patches.resources import ResourcesUnavailable
from vpa.admission.validation import VpaGates, options_for, validate
from vpa.capping import LimitRanges
from vpa.model.amounts import allowed, capped
from vpa.model.cluster import ClusterModel

INT64_MAX = 2**63 - 1
CANONICAL = re.compile(r"[0-9]+(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|e-?[0-9]+)?")
NAMES = ("a", "b", "c")

usual = st.sampled_from(["1m", "100m", "250m", "1", "2", "64Mi", "200Mi", "1Gi", "1000000"])
odd = st.sampled_from([
    "-1", "-100m", "-1Gi", "0", "1n", "-1n", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "9223372036854775807m", "1e19", "8E", "1Ei", "7Ei", "1e30", "-1e30",
    "1.5", "0.0001", "123456789.000000001",
])  # fmt: skip
amounts = usual | odd
lists = st.fixed_dictionaries({}, optional={"cpu": amounts, "memory": amounts})
targets = st.fixed_dictionaries(
    {}, optional={"cpu": amounts, "memory": amounts, "nvidia.com/gpu": amounts, "x": amounts}
)


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    """Return what a pod may have: requests up to limits, an extended resource equal in both."""
    found: dict[str, Any] = {"requests": {}, "limits": {}}
    for name in ("cpu", "memory"):
        low, high = sorted((draw(usual), draw(usual)), key=lambda text: parse(text).nano)
        if draw(st.booleans()):
            found["limits"][name] = high
        if name in found["limits"] or draw(st.booleans()):
            found["requests"][name] = low
    if draw(st.integers(0, 3)) == 0:
        found["requests"]["nvidia.com/gpu"] = found["limits"]["nvidia.com/gpu"] = "1"
    return {key: value for key, value in found.items() if value}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    names = NAMES[: draw(st.integers(1, 3))]
    containers = [{"name": name, "resources": draw(resources())} for name in names]
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    if draw(st.booleans()):
        pod["spec"]["initContainers"] = [
            {"name": "i", "resources": draw(resources()),
             **({"restartPolicy": "Always"} if draw(st.booleans()) else {})}
        ]  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        whole = {name: draw(usual) for name in ("cpu", "memory")}
        pod["spec"]["resources"] = {"requests": whole, "limits": whole}
    if draw(st.booleans()):
        kept = {"requests": draw(lists), "limits": draw(lists)}
        text = str(kept).replace("'", '"')
        pod["metadata"]["annotations"] = {f"{ANNOTATION_PREFIX}a": text}
    if draw(st.booleans()):
        pod["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": name, "resources": draw(resources())} for name in names],
        }
    return pod


@st.composite
def vpas(draw: st.DrawFn) -> dict[str, Any]:
    policy = st.fixed_dictionaries(
        {},
        optional={
            "minAllowed": lists,
            "maxAllowed": lists,
            "controlledValues": st.sampled_from(["RequestsOnly", "RequestsAndLimits"]),
        },
    )
    boost = st.fixed_dictionaries({"type": st.just("Factor"), "factor": st.integers(1, 2**31)}) | (
        st.fixed_dictionaries({"type": st.just("Quantity"), "quantity": amounts})
    )
    spec: dict[str, Any] = {
        "updatePolicy": {"updateMode": draw(st.sampled_from(["Recreate", "Off", "Initial"]))},
        "resourcePolicy": {
            "containerPolicies": [
                {"containerName": name, **draw(policy)}
                for name in draw(st.lists(st.sampled_from([*NAMES, "*"]), unique=True, max_size=2))
            ]
        },
    }
    if draw(st.integers(0, 2)) == 0:
        spec["startupBoost"] = {"cpu": draw(boost)}
    entries = [
        {"containerName": name, "target": draw(targets), "lowerBound": draw(targets)}
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
    ]
    status = {"recommendation": {"containerRecommendations": entries}}
    return {"metadata": {"name": "v"}, "spec": spec, "status": status}


ranges = st.none() | st.fixed_dictionaries(
    {}, optional={"min": lists, "max": lists, "default": lists, "maxLimitRequestRatio": lists}
)


def refusals(
    pod: dict[str, Any], container: dict[str, Any] | None, whole: dict[str, Any] | None
) -> list[str]:
    """Return what the API server would say about a new pod."""
    found = []
    sums = {"requests": {}, "limits": {}}
    spec = pod["spec"]
    init = spec.get("initContainers", [])
    running = [*spec["containers"], *(c for c in init if c.get("restartPolicy") == "Always")]
    for one in spec["containers"]:
        held = {
            field: {name: parse(text) for name, text in (one["resources"].get(field) or {}).items()}
            for field in ("requests", "limits")
        }
        for field, listed in held.items():
            for name, value in listed.items():
                text = one["resources"][field][name]
                if value.nano < 0 or not CANONICAL.fullmatch(text):
                    found.append(f"{field} {name} {text}")
                if (value.milli if name == "cpu" else value.value) > INT64_MAX:
                    found.append(f"{field} {name} {text} is no int64")
                if name not in ("cpu", "memory", "nvidia.com/gpu"):
                    found.append(f"{name} is no resource of a container")
        for name, value in held["requests"].items():
            limit = held["limits"].get(name)
            if limit is not None and value.nano > limit.nano:
                found.append(f"request of {name} above its limit")
            if name == "nvidia.com/gpu" and (limit is None or value.nano != limit.nano):
                found.append(f"{name} has to be its limit")
        found += outside(held["requests"], held["limits"], container)
    for field, totals in sums.items():
        for name in ("cpu", "memory"):
            listed = [(each.get("resources") or {}).get(field) or {} for each in running]
            starts = [
                (each.get("resources") or {}).get(field) or {}
                for each in init
                if each.get("restartPolicy") != "Always"
            ]
            if any(name in each for each in (*listed, *starts)):
                total = sum(parse(each.get(name, "0")).nano for each in listed)
                most = max((parse(each.get(name, "0")).nano for each in starts), default=0)
                totals[name] = Quantity(max(total, most))
    found += outside(sums["requests"], sums["limits"], whole)
    own = spec.get("resources") or {}
    for name, text in (own.get("requests") or {}).items():
        if sums["requests"].get(name, Quantity(0)).nano > parse(text).nano:
            found.append(f"{name} of the containers exceeds the pod's")
    for name, text in (own.get("limits") or {}).items():
        for one in spec["containers"]:
            limit = (one["resources"].get("limits") or {}).get(name)
            if limit is not None and parse(limit).nano > parse(text).nano:
                found.append(f"{name} limit of a container exceeds the pod's")
    return found


def outside(
    requests: dict[str, Quantity], limits: dict[str, Quantity], item: dict[str, Any] | None
) -> list[str]:
    found = []
    for field, sign in (("min", -1), ("max", 1)):
        for name, text in ((item or {}).get(field) or {}).items():
            bound = parse(text).nano
            if field == "max" and bound <= 0:
                continue  # nothing could be created
            found += [
                f"{name} beyond {field} {text}"
                for listed in (requests, limits)
                if name in listed and sign * listed[name].nano > sign * bound
            ]
    for name, text in ((item or {}).get("maxLimitRequestRatio") or {}).items():
        ratio = parse(text).nano
        if ratio <= 0 or name not in requests or name not in limits:
            continue
        if limits[name].nano * NANO > ratio * requests[name].nano:
            found.append(f"{name} more than {text} times its request")
    return found


def applied(pod: dict[str, Any], entries: list[PatchEntry]) -> dict[str, Any]:
    after: dict[str, Any] = json_patch.json_patch(
        copy.deepcopy(pod), [to_builtins(entry) for entry in entries]
    )
    return after


@settings(max_examples=400, deadline=None)
@given(pods(), vpas(), ranges, ranges, st.booleans())
def test_a_new_pod_is_one_that_the_api_server_takes(pod, vpa, container, whole, boosts):
    if refusals(pod, container, whole):
        return
    item = decode(container, LimitRangeItem) if container is not None else None
    of_pod = decode(whole, LimitRangeItem) if whole is not None else None
    found = admission_patch(
        pod_of(pod), decode(vpa, Vpa), LimitRanges(item, of_pod), BoostSettings(boosts)
    )
    if not isinstance(found, ResourcesUnavailable):
        assert refusals(applied(pod, found), container, whole) == []


@settings(max_examples=400, deadline=None)
@given(pods(), vpas(), ranges, ranges)
def test_a_resized_pod_is_one_that_the_api_server_takes(pod, vpa, container, whole):
    if refusals(pod, container, whole):
        return
    item = decode(container, LimitRangeItem) if container is not None else None
    of_pod = decode(whole, LimitRangeItem) if whole is not None else None
    found = resize_patch(pod_of(pod), decode(vpa, Vpa), LimitRanges(item, of_pod), 2e9)
    if isinstance(found, ResourcesUnavailable):
        return
    assert refusals(applied(pod, list(found.resize)), container, whole) == []
    if found.annotations:
        applied(pod, list(found.annotations))


@settings(max_examples=150, deadline=None)
@given(vpas(), amounts)
def test_no_bound_of_a_policy_makes_an_amount_that_nobody_can_have(vpa, amount):
    read = decode(vpa, Vpa)
    for policy in read.spec.resource_policy.container_policies:
        for name in ("cpu", "memory"):
            value, _ = capped(name, parse("100m"), allowed(policy, {name: parse(amount)}))
            assert 0 < value.nano <= INT64_MAX * NANO


@settings(max_examples=150, deadline=None)
@given(vpas())
def test_a_vpa_is_refused_by_the_field_of_each_amount_that_nobody_can_have(vpa):
    spec = decode(vpa, Vpa).spec
    wrong = {
        f"spec.resourcePolicy.containerPolicies[{number}].{field}[{name}]"
        for number, policy in enumerate(vpa["spec"]["resourcePolicy"]["containerPolicies"])
        for field in ("minAllowed", "maxAllowed")
        for name, text in (policy.get(field) or {}).items()
        if parse(text).nano < 0
        or (parse(text).milli if name == "cpu" else parse(text).value) > INT64_MAX
    }
    found = validate(spec, options_for(None, VpaGates(cpu_startup_boost=True)))
    assert wrong <= {error.field for error in found.errors}
    told = ClusterModel().put_vpa(decode(vpa, Vpa), None, 0.0).mistakes
    assert {mistake.annotation for mistake in told} >= wrong
