"""Lints of HPAs and VPAs: what the API server accepts and people regret."""

import json
from typing import Any

import pytest

from adapter.doctor.evidence import LintFinding
from podscale.cli.doctor.object_lints import OBJECT_LINTS, World, lint_objects


def lints(objects: list[dict[str, Any]]) -> list[LintFinding]:
    world = World()
    for each in objects:
        world.add(each["kind"], json.dumps(each).encode())
    return list(lint_objects(world))


def hpa(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    full = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9, **spec}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": full,
    }


def cpu(kind: str = "Utilization") -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": kind}}}


def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": list(containers)}},
        },
    }


def container(name: str, **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def vpa(**spec: Any) -> dict[str, Any]:
    return {
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web-vpa", "namespace": "shop"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, **spec},
    }


def pod(name: str, owner: tuple[str, str] | None) -> dict[str, Any]:
    owners = [{"kind": owner[0], "name": owner[1], "uid": "u", "controller": True}] if owner else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": owners,
        },
    }


ASKED = container("main", requests={"cpu": "100m"})


@pytest.mark.parametrize(("objects", "expected"), [
    pytest.param([hpa(), deployment(ASKED)], set(), id="sound"),
    pytest.param([hpa(maxReplicas=2)], {"MinEqualsMax"}, id="min-is-max"),
    pytest.param([hpa(), deployment(ASKED, container("side"))], {"NoRequests"},
                 id="the-default-metric-is-utilisation"),
    pytest.param([hpa(metrics=[cpu("AverageValue")]), deployment(container("side"))], set(),
                 id="values-need-no-requests"),
    pytest.param([hpa(), deployment(container("main", limits={"cpu": 1}))], set(),
                 id="a-limit-is-a-request"),
    pytest.param([hpa(metrics=[cpu()]), vpa()], {"HPAAndVPA"}, id="hpa-and-vpa"),
    pytest.param([hpa(metrics=[cpu()]), vpa(updatePolicy={"updateMode": "Off"})], set(),
                 id="a-vpa-that-is-off"),
    pytest.param([hpa(metrics=[cpu()]), vpa(resourcePolicy={"containerPolicies": [
        {"containerName": "*", "controlledResources": ["memory"]}]})], set(),
        id="another-resource"),
    pytest.param([hpa(), deployment(ASKED), pod("web-5d8f-x", ("ReplicaSet", "web-5d8f")),
                  pod("migrate-1", ("Job", "migrate"))], {"ForeignPods"}, id="foreign-pods"),
    pytest.param([hpa(), deployment(ASKED), pod("web-5d8f-x", ("ReplicaSet", "web-5d8f"))], set(),
                 id="own-pods"),
])  # fmt: skip
def test_objects(objects, expected):
    assert {each.lint for each in lints(objects)} == expected
    assert expected <= OBJECT_LINTS.keys()


def shared(percent: int, used: str | None, sized: str | None) -> list[dict[str, Any]]:
    """Return an HPA and a VPA on the CPU of one container."""
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}
    current = {"name": "cpu", "current": {"averageValue": used}}
    scaled = {
        **hpa(metrics=[{"type": "Resource", "resource": metric}]),
        "status": {"currentMetrics": [{"type": "Resource", "resource": current}]},
    }
    entry = {"containerName": "main", "target": {"cpu": sized}}
    status = {"recommendation": {"containerRecommendations": [entry]}} if sized else {}
    return [scaled, {**vpa(), "status": status}]


@pytest.mark.parametrize(("percent", "used", "sized", "said"), [
    (60, "300m", "400m", "75 % of the 400m that the VPA gives it, and the target is 60 %"),
    (60, "300m", "400m", "together they drift to many small pods"),
    (90, "300m", "400m", "together they drift to few large pods"),
    (73, "300m", "400m", "they drift slowly, if at all"),
    (60, None, "400m", "where 60 % is below mean(u) / (1.15 · p90(u))"),
    (60, "300m", None, "where 60 % is below mean(u) / (1.15 · p90(u))"),
])  # fmt: skip
def test_the_drift_is_named_before_it_happens(percent, used, sized, said):
    (told,) = lints(shared(percent, used, sized))
    assert told.lint == "HPAAndVPA"
    assert said in told.reason
    assert 'podscale.io/coordinate: "on"' in told.reason


def asking(found: dict[str, Any], reason: str = "AnchorHeld") -> dict[str, Any]:
    condition = {"type": "Coordinated", "status": "True", "reason": reason, "message": "held"}
    return {
        **found,
        "metadata": {**found["metadata"], "annotations": {"podscale.io/coordinate": "on"}},
        "status": {"conditions": [condition] if reason else []},
    }


@pytest.mark.parametrize(("objects", "expected", "said"), [
    pytest.param([asking(hpa()), vpa()], [], "", id="coordinated"),
    pytest.param([asking(hpa(), ""), vpa()], ["NotCoordinated", "HPAAndVPA"], "does not act on it",
                 id="nobody-acts"),
    pytest.param([asking(hpa(metrics=[cpu("AverageValue")]), "NoUtilizationTarget"), vpa()],
                 ["NotCoordinated"], "nothing has an anchor", id="average-value"),
    pytest.param([asking(hpa(), "NoVpa")], ["NotCoordinated"], "no VPA", id="no-vpa"),
    pytest.param([asking(hpa(), "VpaOff"), vpa(updatePolicy={"updateMode": "Off"})],
                 ["NotCoordinated"], "update mode Off", id="off"),
    pytest.param([asking(hpa(), "VpaOff"), vpa(updatePolicy={"updateMode": "Initial"})],
                 ["NotCoordinated", "HPAAndVPA"], "update mode Initial", id="initial"),
    pytest.param([asking(hpa(), "TwoVpas"), vpa(), {**vpa(), "metadata": {
        "name": "twin", "namespace": "shop"}}], ["TwoVPAs", "HPAAndVPA", "HPAAndVPA"],
        "vpa/twin and vpa/web-vpa", id="two"),
    pytest.param([hpa(metrics=[cpu("AverageValue")]), vpa()], [], "",
                 id="a-value-does-not-drift"),
])  # fmt: skip
def test_what_comes_of_an_hpa_that_asks_to_be_coordinated(objects, expected, said):
    told = lints(objects)
    assert [each.lint for each in told] == expected
    assert not told or said in told[0].reason


def test_a_foreign_pod_is_named():
    objects = [hpa(), deployment(ASKED), pod("migrate-1", ("Job", "migrate"))]
    (told,) = lints(objects)
    assert "migrate-1" in told.reason
    assert told.subject == "hpa/web in shop"


@pytest.mark.parametrize(("annotations", "told"), [
    ({"podscale.io/fallbak": "{}"}, "podscale.io/fallback"),
    ({"podscale.io/Paused": "true"}, "podscale.io/paused"),
    ({"podscale.io/paused": "true", "podscale.io/sync-period": "1m"}, ""),
    ({"example.io/paused": "true"}, ""),
    (None, ""),
])  # fmt: skip
def test_an_annotation_that_is_no_setting_is_told_with_the_nearest(annotations, told):
    written = hpa()
    written["metadata"]["annotations"] = annotations
    found = {each.lint: each.reason for each in lints([written])}
    if not told:
        assert found == {}
        return
    (key,) = annotations
    text = f"{key}: there is no such setting (the nearest is {told})"
    assert found == {"UnknownAnnotation": text}


def test_a_field_that_is_not_known_is_told_wherever_it_stands_and_whatever_its_name():
    written = hpa()
    target = {"type": "AverageValue", "averageValue": "1", "percentile": 99}
    written["spec"] |= {
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "futureField": {"a": 1}, "behavior": {"scaleDown": {"jitter": None}},
    }  # fmt: skip
    found = [(each.lint, each.reason.partition(":")[0]) for each in lints([written])]
    assert found == [
        ("UnknownField", path)
        for path in ("spec.metrics[0].resource.target.percentile", "spec.futureField",
                     "spec.behavior.scaleDown.jitter")
    ]  # fmt: skip


@pytest.mark.parametrize(("annotation", "found"), [
    (None, []),
    ("1m", [("TwoSyncPeriods", ("spec.syncPeriodSeconds: 30 does not count beside the annotation "
             "podscale.io/sync-period"))]),
])  # fmt: skip
def test_of_two_periods_it_is_told_which_counts(annotation, found):
    written = hpa()
    written["spec"]["syncPeriodSeconds"] = 30
    written["metadata"]["annotations"] = annotation and {"podscale.io/sync-period": annotation}
    assert [(each.lint, each.reason) for each in lints([written])] == found


@pytest.mark.parametrize(("status", "reason", "found"), [
    ("False", "FailedGetPodsMetric", ["NotScaling"]),
    ("False", "FailedGetScale", ["NotScaling"]),
    ("False", "ScalingDisabled", []),
    ("True", "ValidMetricFound", []),
])  # fmt: skip
def test_an_hpa_whose_controller_cannot_decide_is_a_finding(status, reason, found):
    condition = {"type": "ScalingActive", "status": status, "reason": reason, "message": "why"}
    objects = [{**hpa(metrics=[cpu("AverageValue")]), "status": {"conditions": [condition]}}]
    told = lints(objects)
    assert [each.lint for each in told] == found
    assert all(each.reason.endswith(f"ScalingActive is False: {reason}: why") for each in told)
    # From the first moment, also before an outage is long enough for the message to say it.
    condition["lastTransitionTime"] = "2026-11-24T20:30:49Z"
    for each in lints(objects):
        assert "is False since 2026-11-24T20:30:49Z: " in each.reason
    condition["lastTransitionTime"] = None
    assert lints(objects) == told
