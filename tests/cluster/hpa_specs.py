"""Random HPAs with a little of everything wrong, for the API server and for us.

Equal seeds give equal ones. Nothing that cannot be decoded; and no selectors of metrics, with
which the API server finds nothing wrong.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Spec = dict[str, Any]

VERSIONS = (*("apps/v1",) * 8, "v1", "", "a/b/c", "/v1", "apps/", "/")
NAMES = (
    *("web",) * 9, "", ".", "..", "a/b", "a%b", "/%", "Web_1 of mine",
    "x" * 254, 'we"/b', "a\\/b", "a\tb%", "ü/é", "\u200b/",
)  # fmt: skip
OWN_NAMES = (*("web",) * 12, "", "web.0", "Web", "a..b", "-a", "a/b", "x" * 253, "x" * 254, "wéb")
KINDS = (*("Deployment",) * 8, "ReplicationController", "Service", "", "..", "a/b")
RESOURCES = (
    *("cpu", "memory") * 3,
    *("ephemeral-storage", "storage", "pods", "foo", "", "requests.cpu", "limits.memory"),
    *("hugepages-2Mi", "hugepages-", "requests.hugepages-2Mi", "services.nodeports"),
    *("example.com/gpu", "requests.example.com/gpu", "kubernetes.io/x", "a.kubernetes.io/x"),
    *("Cpu", "-cpu", "c_p.u", "a b", "a/b/c", "/a", "a/", "x" * 64, "é" * 40),
    *("EXAMPLE.com/gpu", "example.com/-gpu", f"{'x' * 250}.io/gpu", f"{'x' * 251}.io/gpu"),
)
CONTAINERS = (*("app",) * 6, "", "App", "a.b", "-a", "a-", "x" * 63, "x" * 64, "é" * 40, 'a"b')
AMOUNTS = (
    *("1", "500m", "10Gi", 1, 0.5, "0.0001", "1n", "1e3", "0", "-1", "-1m", 0, -2),
    *("-1.5Gi", "-1024Ki", "-1000000", "-1e3", "-100000e3", "-1e-10", "-0", "0Gi", -0.5),
)
TOLERANCES = (None, None, "0.1", 0, "-0.1", "1m", "-1n", "-1024Ki", "-1e-10", "0.15")
PERCENTS = (50, 100, 1, 0, -1, 2**31 - 1)
SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
TARGETS = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}


def random_hpa(seed: int) -> Spec:
    """Return an HPA in autoscaling/v2."""
    draw = _Draw(random.Random(seed))
    return hpa(draw.spec(), draw.name())


def hpa(spec: Spec, name: str = "web") -> Spec:
    """Return the HPA of a spec."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": spec,
    }


class _Draw:
    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._is_calm = self._chance(0.4)  # little of it is wrong

    def spec(self) -> Spec:
        return self._some(
            {
                "scaleTargetRef": self._reference(),
                "minReplicas": self._one((None, None, 1, 1, 2, 5, 0, 0, -1)),
                "maxReplicas": self._one((1, 3, 3, 10, 10, 0, -1)),
                "metrics": self._metrics(),
                "behavior": self._behavior() if self._chance(0.5) else None,
            }
        )

    def name(self) -> str:
        return self._one(OWN_NAMES)

    def _metrics(self) -> list[Spec] | None:
        if self._chance(0.1):
            return self._one((None, []))
        return [self._metric() for _ in range(self._one((1, 1, 2, 3)))]

    def _metric(self) -> Spec:
        kind = self._random.choice((*list(SOURCES) * 4, "Best", ""))
        drawn = {kind} if self._chance(0.9) else set()
        if self._chance(0.15):
            drawn.add(self._one(tuple(SOURCES)))
        found = {SOURCES[each]: self._source(each) for each in SOURCES if each in drawn}
        return {"type": kind, **found}

    def _source(self, kind: str) -> Spec:
        target = self._target("Utilization" if "Resource" in kind else "AverageValue")
        if kind == "Resource":
            return {"name": self._one(RESOURCES), "target": target}
        if kind == "ContainerResource":
            name, container = self._one(RESOURCES), self._one(CONTAINERS)
            return {"name": name, "container": container, "target": target}
        found = {"metric": {"name": self._one(NAMES)}, "target": target}
        if kind == "Object":
            found["describedObject"] = self._reference()
        return found

    def _target(self, usual: str) -> Spec:
        kind = self._one((usual, *TARGETS))
        written = {kind} if self._chance(0.9) else set()
        if self._chance(0.15):
            written.add(self._one(tuple(TARGETS)))
        found: Spec = {"type": self._one((*(kind,) * 12, "Best", ""))}
        for each, field in TARGETS.items():
            if each in written:
                found[field] = self._one(PERCENTS if each == "Utilization" else AMOUNTS)
        return found

    def _reference(self) -> Spec:
        version = self._one((*VERSIONS, None))
        found = {"apiVersion": version, "kind": self._one(KINDS), "name": self._one(NAMES)}
        return self._some(found)

    def _behavior(self) -> Spec:
        return {name: self._rules() for name in ("scaleUp", "scaleDown") if self._chance(0.6)}

    def _rules(self) -> Spec:
        return self._some(
            {
                "stabilizationWindowSeconds": self._one((None, 0, 300, 3600, 3601, -1)),
                "selectPolicy": self._one((None, None, "Max", "Min", "Disabled", "Best", "")),
                "policies": self._policies(),
                "tolerance": self._one(TOLERANCES),
            }
        )

    def _policies(self) -> list[Spec] | None:
        if self._chance(0.3):
            return self._one((None, None, []))
        return [
            {
                "type": self._one(("Pods", "Pods", "Percent", "Percent", "Best", "")),
                "value": self._one((1, 4, 100, 0, -1)),
                "periodSeconds": self._one((1, 60, 1800, 1801, 0, -1)),
            }
            for _ in range(self._one((1, 1, 2)))
        ]

    def _some(self, drawn: Mapping[str, Any]) -> Spec:
        return {name: each for name, each in drawn.items() if each is not None}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _one(self, among: Sequence[T]) -> T:
        if self._is_calm and self._chance(0.9):
            return among[0]
        return self._random.choice(among)
