"""Pods and VPAs of the updater's tests."""

from typing import Any

from podscale.core.disruptions import pace_of
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import Vpa, decode
from tests.pods import pod_of
from vpa.updater.decide.decision import (
    AdmissionLease,
    LoopView,
    UpdateDecision,
    UpdatedPod,
    decide_update,
)
from vpa.updater.decide.disruption_budget import Owner, OwnerSize, budget_for
from vpa.updater.decide.priority import UpdaterSettings

NOW = 1_773_057_600.0  # 2026-03-09T12:00:00Z
OLD = "2026-03-07T12:00:00Z"
YOUNG = "2026-03-09T09:00:00Z"
SETTINGS = UpdaterSettings(in_place=True)
RS = Owner("ReplicaSet", "web-7d4")


def pod(
    name: str = "web-0",
    requests: dict[str, str] | None = None,
    *,
    limits: dict[str, str] | None = None,
    started: str = OLD,
    phase: str = "Running",
    conditions: list[dict[str, str]] | None = None,
    owner: dict[str, Any] | None = None,
    containers: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> PodView:
    wanted = {"cpu": "100m", "memory": "512Mi"} if requests is None else requests
    return pod_of(
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": name,
                "labels": {"app": "web"},
                "annotations": annotations,
                "ownerReferences": [
                    owner or {"kind": "ReplicaSet", "name": "web-7d4", "controller": True}
                ],
            },
            "spec": {
                "containers": [
                    {"name": "app", "resources": {"requests": wanted, "limits": limits or {}}}
                ],
                **spec,
            },
            "status": {
                "phase": phase,
                "startTime": started,
                "conditions": conditions or [],
                "containerStatuses": containers or [],
            },
        }
    )


def vpa(mode: str = "Recreate", **parts: Any) -> Vpa:
    entry = {
        "containerName": "app",
        "target": {"cpu": "500m", "memory": "512Mi"},
        "lowerBound": {"cpu": "300m", "memory": "400Mi"},
        "upperBound": {"cpu": "1", "memory": "1Gi"},
    }
    return decode(
        {
            "metadata": {"name": "web", "namespace": "shop", **parts.pop("metadata", {})},
            "spec": {"updatePolicy": {"updateMode": mode, **parts.pop("policy", {})}, **parts},
            "status": {"recommendation": {"containerRecommendations": [entry]}},
        },
        Vpa,
    )


def decided(
    subject: PodView,
    of_vpa: Vpa,
    *,
    others: int = 3,
    lease_age_s: float = 5.0,
    size: OwnerSize = OwnerSize(replicas=4),  # noqa: B008 - frozen
    now: float = NOW,
    settings: UpdaterSettings = SETTINGS,
    **view: Any,
) -> UpdateDecision:
    group = [subject, *(pod(f"other-{number}") for number in range(others))]
    budget = budget_for(group, of_vpa, {RS: size}, settings)
    loop = LoopView(now, AdmissionLease("vpa-admission-controller", None, now - lease_age_s))
    return decide_update(
        UpdatedPod(subject, of_vpa, **view),
        budget,
        loop,
        settings,
        pace_of(of_vpa.metadata.annotations),
    )
