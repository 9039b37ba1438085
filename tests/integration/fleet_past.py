"""A small cluster's past for a real Prometheus, as cAdvisor and kube-state-metrics write it.

Everything that a report has to say something about is there once: load by day, growth, bursts,
a kill, an HPA, gaps, a workload of another name, one that was born yesterday and one just now;
beside them ballast.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

STEP_S, GIB = 60, 2**30
Curve = Callable[[np.ndarray], np.ndarray]  # from hours since the beginning


class PastPod(NamedTuple):
    """One pod of one container."""

    name: str
    owner: tuple[str, str]
    cpu: Curve
    memory: Curve
    requests: Mapping[str, float] = {}
    first_h: float = 0.0
    last_h: float = 1e9
    gap_h: tuple[float, float] = (0.0, 0.0)
    namespace: str = "default"


def flat(value: float) -> Curve:
    return lambda hours: np.full(hours.size, value)


def daily(low: float, high: float) -> Curve:
    return lambda hours: low + (high - low) * (np.sin(hours / 24 * 2 * np.pi) > 0)


def bursts(low: float, high: float) -> Curve:
    # Now and then for half an hour, never at the same time of day.
    return lambda hours: np.where((hours * 7.3) % 31 < 3.6, high * (1 + hours % 3), low)


def growing(first: float, per_day: float) -> Curve:
    return lambda hours: first + per_day * hours / 24


def cast(hours: float) -> list[PastPod]:
    """Return the pods of ``hours``."""
    of_web = {"cpu": 2.0, "memory": 2.0 * GIB}
    small = {"cpu": 0.5, "memory": 0.5 * GIB}
    return [
        *(PastPod(f"web-6d4f9c5b7d-x2x4{each}", ("ReplicaSet", "web-6d4f9c5b7d"),
                  daily(0.05, 0.4), flat(0.3 * GIB), of_web, gap_h=(10.0, 15.0))
          for each in "bc"),
        PastPod("queue-0", ("StatefulSet", "queue"), flat(0.2), growing(0.2 * GIB, 0.06 * GIB),
                small),
        PastPod("api-7f9c6bd5dc-k8s7z", ("ReplicaSet", "api-7f9c6bd5dc"), bursts(0.05, 0.6),
                flat(0.1 * GIB), small),
        PastPod("still-5b6d7c8f9-x2x4v", ("ReplicaSet", "still-5b6d7c8f9"), flat(0.001),
                flat(0.05 * GIB)),
        PastPod("shop-8d6c5b4f7-zzzzz", ("ReplicaSet", "shop-8d6c5b4f7"), flat(0.3),
                flat(0.1 * GIB), small, last_h=hours - 30),
        PastPod("store-8d6c5b4f7-zzzzz", ("ReplicaSet", "store-8d6c5b4f7"), flat(0.3),
                flat(0.1 * GIB), small, first_h=hours - 30),
        PastPod("new-8d6c5b4f7-zzzzz", ("ReplicaSet", "new-8d6c5b4f7"), flat(0.3), flat(0.1 * GIB),
                small, first_h=hours - 3),
        PastPod("podscale-ballast-x2x4v", ("DaemonSet", "podscale-ballast"), flat(0.0),
                flat(0.001 * GIB), {"cpu": 1.5, "memory": 4.0 * GIB}, namespace="podscale-ballast"),
    ]  # fmt: skip


def openmetrics(
    end_s: int, hours: float, *more: PastPod, with_kube_state_metrics: bool = True
) -> str:
    """Return the text that ``promtool`` makes blocks of, up to ``end_s``."""
    lines = _lines(end_s, hours, [*cast(hours), *more], with_kube_state_metrics)
    return "\n".join([*lines, "# EOF\n"])


def _lines(end_s: int, hours: float, pods: list[PastPod], is_whole: bool) -> Iterator[str]:
    times = np.arange(end_s - hours * 3600, end_s + 1, STEP_S)
    at = (times - times[0]) / 3600
    seen = {
        pod.name: (at >= pod.first_h) & (at <= pod.last_h)
        & ~((at > pod.gap_h[0]) & (at < pod.gap_h[1])) for pod in pods
    }  # fmt: skip

    def series(name: str, labels: str, values: np.ndarray, rows: np.ndarray) -> Iterator[str]:
        for when, value in zip(times[rows], values[rows], strict=True):
            yield f"{name}{{{labels}}} {value:.4f} {when:.0f}"

    yield "# TYPE container_cpu_usage_seconds counter"
    for pod in pods:
        counter = np.cumsum(pod.cpu(at)) * STEP_S
        yield from series("container_cpu_usage_seconds_total", _of(pod), counter, seen[pod.name])
    yield "# TYPE container_memory_working_set_bytes gauge"
    for pod in pods:
        yield from series(
            "container_memory_working_set_bytes", _of(pod), pod.memory(at), seen[pod.name]
        )
    for name, share in (("throttled_periods", 3.0), ("periods", 10.0)):
        yield f"# TYPE container_cpu_cfs_{name} counter"
        counts = share * np.arange(times.size)
        yield from series(f"container_cpu_cfs_{name}_total", _of(pods[3]), counts, times > 0)
    if is_whole:
        yield from _state(pods, seen, times, series)


def _state(pods, seen, times, series) -> Iterator[str]:
    always, one = times > 0, np.ones(times.size)
    yield "# TYPE kube_pod_owner gauge"
    for pod in pods:
        kind, name = pod.owner
        labels = (f'namespace="{pod.namespace}",pod="{pod.name}",owner_kind="{kind}",'
                  f'owner_name="{name}"')  # fmt: skip
        yield from series("kube_pod_owner", labels, one, seen[pod.name])
    yield "# TYPE kube_replicaset_owner gauge"
    for name in sorted({pod.owner[1] for pod in pods if pod.owner[0] == "ReplicaSet"}):
        owner = name.rpartition("-")[0]
        labels = (f'namespace="default",replicaset="{name}",owner_kind="Deployment",'
                  f'owner_name="{owner}"')  # fmt: skip
        yield from series("kube_replicaset_owner", labels, one, always)
    for what in ("requests", "limits"):
        yield f"# TYPE kube_pod_container_resource_{what} gauge"
        for pod in pods:
            for resource, value in pod.requests.items():
                amount = value * (1 if what == "requests" else 2)
                yield from series(f"kube_pod_container_resource_{what}",
                                  f'{_of(pod)},resource="{resource}"', amount * one,
                                  seen[pod.name])  # fmt: skip
    yield "# TYPE kube_pod_container_status_last_terminated_reason gauge"
    killed = f'{_of(pods[2])},reason="OOMKilled"'
    yield from series("kube_pod_container_status_last_terminated_reason", killed, one,
                      times > times[-1] - 7200)  # fmt: skip
    of_hpa = 'namespace="default",horizontalpodautoscaler="web"'
    yield "# TYPE kube_horizontalpodautoscaler_info gauge"
    yield from series("kube_horizontalpodautoscaler_info",
                      f'{of_hpa},scaletargetref_kind="Deployment",scaletargetref_name="web"',
                      one, always)  # fmt: skip
    yield "# TYPE kube_horizontalpodautoscaler_status_condition gauge"
    yield from series("kube_horizontalpodautoscaler_status_condition",
                      f'{of_hpa},condition="ScalingActive",status="true"', one, always)  # fmt: skip
    yield "# TYPE kube_node_status_allocatable gauge"
    for resource, value in (("cpu", 4.0), ("memory", 16.0 * GIB)):
        yield from series("kube_node_status_allocatable",
                          f'node="n1",resource="{resource}"', value * one, always)  # fmt: skip
    yield "# TYPE kube_limitrange gauge"
    for constraint, value in (("min", 0.1), ("max", 3.0)):
        labels = (f'namespace="default",limitrange="l",type="Container",resource="cpu",'
                  f'constraint="{constraint}"')  # fmt: skip
        yield from series("kube_limitrange", labels, value * one, always)


def _of(pod: PastPod) -> str:
    return f'namespace="{pod.namespace}",pod="{pod.name}",container="main"'
