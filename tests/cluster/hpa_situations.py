"""Random passes of an HPA in the form of the case files, drawn towards the borders of the rules.

Ages lie on the ends of windows and beside them, usage on the edges of the tolerance, sizes on the
bounds. Equal seeds give equal passes.
"""

import math
import random
from collections.abc import Sequence
from typing import TypeVar

from tests.conformance.cases import Case

T = TypeVar("T")

WINDOWS_S = (0, 1, 15, 60, 120, 300, 3600)
PERIODS_S = (1, 15, 30, 60, 120, 1800)
CONDITIONS = (
    ("AbleToScale", "True", "SucceededGetScale"),
    ("AbleToScale", "True", "ReadyForNewScale"),
    ("AbleToScale", "False", "FailedGetScale"),
    ("ScalingActive", "True", "ValidMetricFound"),
    ("ScalingActive", "False", "FailedGetPodsMetric"),
    ("ScalingLimited", "False", "DesiredWithinRange"),
    ("ScalingLimited", "True", "TooManyReplicas"),
    ("ScaledToZero", "True", "ScaledToZero"),
    ("ScaledToZero", "False", "NotScaledToZero"),
)
KINDS = (
    *("Deployment",) * 20,
    *("ReplicaSet", "StatefulSet", "ReplicationController") * 6,
    "Gizmo",
)
SELECTORS = (
    *("name=test-pod",) * 60,
    "",
    None,
    "name in (test-pod,other)",
    "name=(",
    "a/b/c=d",
    f"{'x' * 64}=d",
    f"{'x' * 254}.io/name=d",
    f"name in ({'x' * 64},a/b)",
    "name!=other",
    "a b c",
    "n>1",
    "n<x",
    " ",
    "name==test-pod",
    "name=other, name=test-pod",
    "!missing,name in (test-pod),name=test-pod",
)
METRICS = (
    "Resource", "Resource", "ContainerResource", "Pods", "Pods", "Object", "External", "External",
)  # fmt: skip
FAULTS = (
    "scale_get", "scale_update", "status_update", "resource_metrics", "custom_metrics",
    "external_metrics", "scale_update_conflicts",
)  # fmt: skip


def situation(seed: int) -> Case:
    """Return the ``inputs`` of one case of kind ``reconcile``, and of passes that follow it."""
    return _Situation(random.Random(seed)).drawn()


class _Situation:
    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._flags: Case = {
            "tolerance": self._one((0.1, 0.1, 0.0, 0.01, 0.3)),
            "downscale_stabilization_s": self._one((300, 300, 0, 60)),
            "cpu_initialization_period_s": self._one((300, 120, 0)),
            "initial_readiness_delay_s": self._one((30, 10, 0)),
        }
        self._behavior = self._behavior_drawn()
        self._may_idle = self._happens(0.15)  # usage of zero, where zero is allowed

    def _one(self, among: Sequence[T]) -> T:
        return self._random.choice(among)

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _near(self, border: float) -> int:
        return max(0, int(border) + self._one((-1, 0, 0, 0, 1)))

    def drawn(self) -> Case:
        gates = {
            "HPAScaleToZero": self._may_idle or self._happens(0.5),
            "HPAConfigurableTolerance": self._happens(0.7),
        }
        spec = self._one((0, 1, 1, 2, 3, 4, 5, 5, 10, 25))
        other = self._one((0, 1, max(0, spec - 1), spec + 1, spec * 2))
        status = spec if self._happens(0.8) else other
        count = status if self._happens(0.75) else self._one((0, 1, status + 2))
        metrics = [self._metric() for _ in range(self._one((1, 1, 1, 2, 2, 3)))]
        most = self._one((1, 2, 3, 5, 10, 10, 2 * spec + 1, spec + 5, 100, 1000))
        bounds = (None, 0, 1, 1, 2, 3, most, max(1, spec - 1), 0)
        least = self._one((0,) if self._may_idle else bounds)
        pods = [self._pod(f"pod-{number}") for number in range(count)]
        inputs: Case = {
            "hpa": {
                "minReplicas": None if least is None else min(least, most),
                "maxReplicas": most,
                "behavior": self._behavior,
                "metrics": metrics,
            },
            "gates": gates,
            "flags": self._flags,
            "target": {
                "kind": self._one(KINDS),
                "spec_replicas": spec,
                "status_replicas": status,
                "selector": self._one(SELECTORS),
            },
            "status_before": self._status(spec),
            "recommendations": self._recommendations(spec),
            "pods": pods,
            "scale_up_events": self._events("scaleUp"),
            "scale_down_events": self._events("scaleDown"),
            "faults": self._faults(),
        }
        if self._happens(0.08):
            others = self._random.sample(("another", "other", "the-other"), self._one((1, 1, 2)))
            selectors = ("name=test-pod", "name=other", "name")
            inputs["other_hpa_selectors"] = {name: self._one(selectors) for name in others}
        if self._happens(0.01):
            inputs["hpa"]["target_api_version"] = "apps/v1/v2"
        later = [self._later(metrics, spec) for _ in range(self._one((0, 0, 1, 3, 6)))]
        return inputs | self._answers(metrics, pods, status) | {"then": later}

    def _later(self, metrics: list[Case], spec: int) -> Case:
        """Return what differs in a later pass of the same controller."""
        count = self._one((spec, spec, spec + 1, max(0, spec - 1), 2 * spec))
        pods = [self._pod(f"pod-{number}") for number in range(count)]
        waited_s = self._one((0, 1, 14, 15, 15, 15, 16, 60, 300))
        made: Case = {"pods": pods, "faults": self._faults(), "after_s": waited_s}
        return made | self._answers(metrics, pods, count)

    def _behavior_drawn(self) -> Case | None:
        if self._happens(0.4):
            return None
        return {side: self._rules() for side in ("scaleUp", "scaleDown") if self._happens(0.7)}

    def _rules(self) -> Case:
        rules: Case = {}
        if self._happens(0.6):
            rules["stabilizationWindowSeconds"] = self._one(WINDOWS_S)
        if self._happens(0.5):
            rules["selectPolicy"] = self._one(("Max", "Min", "Min", "Disabled"))
        if self._happens(0.6):
            rules["policies"] = [self._policy() for _ in range(self._one((1, 1, 2, 3)))]
        if self._happens(0.3):
            rules["tolerance"] = self._one((0.0, 0.05, 0.2, 0.5, 1.0))
        return rules

    def _policy(self) -> Case:
        kind = self._one(("Pods", "Percent"))
        values = (1, 2, 3, 4, 10, 20) if kind == "Pods" else (1, 5, 10, 33, 50, 100, 200, 700)
        return {"type": kind, "value": self._one(values), "periodSeconds": self._one(PERIODS_S)}

    def _side(self, name: str) -> Case:
        side: Case = (self._behavior or {}).get(name, {})
        return side

    def _metric(self) -> Case:
        if self._happens(0.01):
            return {"type": "CheddarCheese"}
        kind = self._one(METRICS)
        is_set = self._happens(0.97)
        target: Case = {}
        made: Case = {"type": kind, "target": target}
        if kind in ("Resource", "ContainerResource"):
            made["resource"] = self._one(("cpu", "cpu", "memory"))
            if kind == "ContainerResource":
                made["container"] = self._one(("c1", "c1", "c2", "nope"))
            if self._happens(0.6):
                target["averageUtilization"] = self._one((1, 30, 50, 80, 90, 100, 150))
            elif is_set:
                target["averageValue"] = self._one((1, 100, 300, 500, 1000))
            return made
        made["metric"] = self._one(("qps", "depth"))
        made["selector"] = self._one((None, None, {}, {"q": "a"}, {"q": "a", "b": "c"}))
        name = self._one(("value", "averageValue"))
        amount = self._one((1, 500, 1000, 1001, 3000, 3333, 20000))
        if kind == "Pods":
            target["averageValue"] = amount
        elif is_set:
            target[name] = amount
        if kind == "Object":
            target["type"] = name[0].upper() + name[1:]
            named = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "some-deployment"}
            made["describedObject"] = named
        return made

    def _status(self, spec: int) -> Case:
        conditions = {
            kind: {"type": kind, "status": status, "reason": reason, "message": "as it was"}
            for kind, status, reason in CONDITIONS
            if self._happens(0.3)
        }
        listed = list(conditions.values())
        self._random.shuffle(listed)
        status: Case = {
            "currentReplicas": spec if self._happens(0.8) else self._one((0, 1, spec + 1)),
            "desiredReplicas": spec if self._happens(0.8) else self._one((0, 1, spec + 1)),
            "conditions": listed,
        }
        if self._happens(0.6):
            status["lastScaleTime_age_s"] = self._one((15, 300, 3600))
        return status

    def _recommendations(self, spec: int) -> list[Case] | None:
        if self._happens(0.15):
            return None
        sides = map(self._side, ("scaleUp", "scaleDown"))
        windows = [side.get("stabilizationWindowSeconds", 15) for side in sides]
        borders = (*windows, self._flags["downscale_stabilization_s"], 0, 60)
        sizes = (0, 1, spec, spec, max(0, spec - 1), spec + 1, spec * 2)
        return [
            {"replicas": self._one(sizes), "age_s": self._near(self._one(borders))}
            for _ in range(self._one((0, 1, 2, 3, 5)))
        ]

    def _events(self, side: str) -> list[Case]:
        policies = self._side(side).get("policies", [{"periodSeconds": 15}])
        borders = (*(each["periodSeconds"] for each in policies), 0, 60)
        return [
            {"change": self._one((0, 1, 2, 3, 4, 10)), "age_s": self._near(self._one(borders))}
            for _ in range(self._one((0, 0, 0, 1, 2, 3)))
        ]

    def _faults(self) -> Case:
        if self._happens(0.85):
            return {}
        name = self._one(FAULTS)
        return {name: self._one((1, 4, 5, 9)) if name.endswith("conflicts") else "backend down"}

    def _pod(self, name: str) -> Case:
        made: Case = {"name": name} | self._requests()
        if self._happens(0.6):
            return made
        made["phase"] = self._one((*("Running",) * 6, "Pending", "Failed", "Succeeded", "Unknown"))
        made["ready"] = self._one((True, True, False, False, "unknown", "absent"))
        delay = self._flags["initial_readiness_delay_s"]
        period = self._flags["cpu_initialization_period_s"]
        born = self._one((self._near(period), self._near(2 * period), 3600, "zero", "absent"))
        made["start_age_s"] = born
        if isinstance(born, int):
            turned = self._one((born, self._near(born - delay), 0, 5, 59, 60, 61))
            made["ready_transition_age_s"] = turned
        else:
            made["ready_transition_age_s"] = self._one(("zero", 5, 60, 400))
        if self._happens(0.15):
            made["deleted"] = True
        if self._happens(0.1):
            labels = ({"name": "other"}, {"name": "test-pod", "also": "this"}, {})
            made["labels"] = self._one(labels)
        return made

    def _requests(self) -> Case:
        request = self._one((100, 500, 500, 500, 1000))
        if self._happens(0.85):
            requests: Case = {"c1": request, "c2": request}
            if self._happens(0.005):
                requests[self._one(("c1", "c2"))] = None
            return {"requests": requests}
        second = self._one((request, 1, 250))
        made: Case = {
            "containers": [{"name": "c1", "request": request}, {"name": "c2", "request": second}],
            "init_containers": [self._init(f"i{n}") for n in range(self._one((0, 1, 2)))],
        }
        if self._happens(0.4):
            made["pod_level_request"] = self._one((request, 300))
        if self._happens(0.2):
            made["overhead"] = 50
        if self._happens(0.1):
            made["pod_level_other_requests"] = {"hugepages-2Mi": 1000}
        return made

    def _init(self, name: str) -> Case:
        made: Case = {
            "name": name,
            "request": None if self._happens(0.02) else self._one((50, 100, 500)),
        }
        return made | ({"restart_policy": "Always"} if self._happens(0.6) else {})

    def _ratio(self) -> float:
        sides = map(self._side, ("scaleUp", "scaleDown"))
        own = [side["tolerance"] for side in sides if "tolerance" in side]
        edge = self._one((self._flags["tolerance"], *own))
        if self._may_idle and self._happens(0.8):
            return 0.0
        return self._one(
            (0.0, 0.3, 0.5, 1 - edge, 1 - edge, 1.0, 1 + edge, 1 + edge, 2.0, 3.3, 10.0)
        )

    def _about(self, amount: float) -> int:
        return max(0, math.floor(amount) + self._one((0, 0, 0, 0, 1, -1, 7)))

    def _answers(self, metrics: list[Case], pods: list[Case], status: int) -> Case:
        """Return what each kind of metric asked about is answered."""
        targets: dict[str, list[Case]] = {}
        for each in metrics:
            kind = each["type"].removeprefix("Container")
            targets.setdefault(kind, []).append(each.get("target", {}))
        aims = {kind: self._one(listed) for kind, listed in targets.items()}
        found: Case = {}
        if "Resource" in aims:
            ratio = self._ratio()
            asked = self._measured(pods)
            found["resource_metrics"] = [
                self._usage(*each, aims["Resource"], ratio) for each in asked
            ]
        if "Pods" in aims:
            amount = aims["Pods"]["averageValue"] * self._ratio()
            found["custom_pod_metrics"] = [
                {"pod": name, "value": self._about(amount)} for name, _ in self._measured(pods)
            ]
        if "Object" in aims:
            found["object_metric"] = self._total(aims["Object"], status)
        if "External" in aims:
            parts = self._one((0, 1, 1, 1, 2, 3))
            total = self._total(aims["External"], status)
            found["external_metric"] = [total // parts] * parts if parts else []
        return found

    def _total(self, target: Case, status: int) -> int:
        if "averageValue" in target:
            return self._about(target["averageValue"] * max(status, 1) * self._ratio())
        return self._about(target.get("value", 1000) * self._ratio())

    def _measured(self, pods: list[Case]) -> list[tuple[str, Case]]:
        """Return the pods that are answered for, and now and then one that is not there."""
        if self._happens(0.04):
            return []
        missing = self._one((0.0, 0.0, 0.0, 0.2, 0.6))
        found = [(each["name"], each) for each in pods if not self._happens(missing)]
        if self._happens(0.1):
            found.append(("gone-0", {"requests": {}}))
        self._random.shuffle(found)
        return found

    def _usage(self, name: str, pod: Case, target: Case, ratio: float) -> Case:
        usage: Case = {}
        for container in ("c1", "c2"):
            amount = target.get("averageValue", 500) / 2
            if "averageUtilization" in target:
                amount = _requested(pod, container) * target["averageUtilization"] / 100
            usage[container] = self._about(amount * ratio)
        if self._happens(0.03):
            usage[self._one(("c1", "c2"))] = None
        if self._happens(0.02):
            usage = self._one(({}, {"c1": 10}))
        made = {"pod": name, "usage": usage, "age_s": self._one((0, 0, 5, 15, 30, 60, 61, 120))}
        return made | ({"window_s": self._one((10, 15, 30, 300))} if self._happens(0.2) else {})


def _requested(pod: Case, container: str) -> int:
    if "requests" in pod:
        return pod["requests"].get(container) or 500
    found: int = next(each["request"] for each in pod["containers"] if each["name"] == container)
    return found
