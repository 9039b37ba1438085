"""Equal workloads under an equal load, each set with a controller of its own, and how they went.

What two series of sizes differ by is counted in replica-seconds: how far one is from every size
that the other had within a period, since passes look at their own moments. What is left over
is what the phase did to windows and rates later on; in-tree against in-tree says how much that is.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from tests.cluster import beside_stage
from tests.cluster.beside_cast import Role, role
from tests.cluster.beside_stage import Stage
from tests.cluster.beside_watch import Watch
from tests.cluster.plane import Plane
from tests.tools.process import wait_until

FORMS = (
    ("cpu-utilization", "none"), ("memory-average", "brisk"), ("container-cpu-average", "empty"),
    ("pods-average", "tolerant"), ("pods-selected", "none"), ("object-value", "brisk"),
    ("object-average", "none"), ("external-value", "upwards"), ("external-average", "tolerant"),
    ("external-average", "brisk"),
)  # fmt: skip
_STEP_S = 0.25

Series = Sequence[int]  # the size at every step


class PodTimes(NamedTuple):
    """When the API server told of one pod; infinite: it never did."""

    created: float
    ready: float
    gone: float


class Race:
    """The workloads of one namespace."""

    def __init__(self, plane: Plane, namespace: str, stage: Stage) -> None:
        self._plane, self.namespace, self._stage = plane, namespace, stage
        self.roles: list[Role] = [
            role(namespace, f"{form}-{behavior}", (form,), behavior) for form, behavior in FORMS
        ]
        self._pods = Watch(plane, f"/api/v1/namespaces/{namespace}/pods")
        self._sizes = Watch(plane, f"/apis/apps/v1/namespaces/{namespace}/deployments")
        self._ready = self._began = 0.0

    @classmethod
    @contextlib.contextmanager
    def prepared(cls, plane: Plane, stage: Stage, name: str) -> Iterator["Race"]:
        """Return a race whose pods are ready."""
        with plane.namespace(name) as namespace:
            race = cls(plane, namespace, stage)
            plane.apply(*(each for role in race.roles for each in role.objects))
            wait_until(
                "the pods are ready",
                lambda: len(plane.ready_pods(namespace)) == 2 * len(race.roles),
                30,
            )
            with race._pods, race._sizes:
                race._ready = time.time()
                yield race

    def seconds_until(self, age_s: float) -> float:
        """Return how long it takes until all pods have that age."""
        return max(self._ready + age_s - time.time(), 0.0)

    def start(self) -> None:
        """Give every workload its HPA."""
        self._began = time.time()
        pods = self._pods
        self._stage.races[self.namespace] = beside_stage.Race(self._began, lambda: pods.live)
        self._plane.apply(*(role.hpa for role in self.roles))

    def series(self, seconds: float) -> Mapping[str, Series]:
        """Return the sizes of each workload."""
        assert self._pods.failure is None
        assert self._sizes.failure is None
        return {
            role.name: [
                self.size(role.name, self._began + _STEP_S * step)
                for step in range(int(seconds / _STEP_S))
            ]
            for role in self.roles
        }

    def size(self, name: str, at: float) -> int:
        """Return the size that a workload had."""
        state = self._sizes.history.versions(name, at, at)[-1] or {}
        return int(state["spec"]["replicas"])

    def pod_times(self, name: str) -> list[PodTimes]:
        """Return when the pods of a workload came and went, oldest first."""
        found = []
        for versions in self._pods.history.told.values():
            pods = [(at, pod) for at, pod in versions if pod]
            if pods[0][1]["metadata"]["labels"]["app"] == name:
                ready = (at for at, pod in pods if _is_ready(pod))
                gone = math.inf if versions[-1][1] else versions[-1][0]
                found.append(PodTimes(pods[0][0], next(ready, math.inf), gone))
        return sorted(found)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def apart(one: Series, other: Series, phase_s: float) -> float:
    """Return the replica-seconds that no shift of up to ``phase_s`` explains."""
    reach = round(phase_s / _STEP_S)

    def beyond(mine: Series, theirs: Series) -> float:
        near = [theirs[max(at - reach, 0) : at + reach + 1] for at in range(len(theirs))]
        return sum(
            max(size - max(sizes), min(sizes) - size, 0)
            for size, sizes in zip(mine, near, strict=True)
        )

    return (beyond(one, other) + beyond(other, one)) / 2 * _STEP_S


def between(races: Sequence[Mapping[str, Series]], phase_s: float) -> list[float]:
    """Return how far each pair of races is apart, over all workloads."""
    return [_apart(one, other, phase_s) for one, other in combinations(races, 2)]


def against(
    mine: Mapping[str, Series], races: Sequence[Mapping[str, Series]], phase_s: float
) -> list[float]:
    """Return how far one race is from each of the others, over all workloads."""
    return [_apart(mine, other, phase_s) for other in races]


def total(race: Mapping[str, Series]) -> float:
    """Return the replica-seconds of all workloads."""
    return sum(map(sum, race.values())) * _STEP_S


def _apart(one: Mapping[str, Series], other: Mapping[str, Series], phase_s: float) -> float:
    return sum(apart(one[name], other[name], phase_s) for name in one)
