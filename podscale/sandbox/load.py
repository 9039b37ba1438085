"""What pods have to do, and what they use for it: the source of all metrics of the sandbox.

Requests to a workload are spread over its ready pods; a request costs CPU time, and CPU
stops at the container's limit. Memory may leak, and beyond the limit the container is
killed. Counters go up between two looks by what was used.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from podscale.core import quantity
from podscale.core.goquote import quote
from podscale.core.selectors.selector import Selector
from podscale.sandbox.objects.objects import SandboxObjects, is_ready
from podscale.sandbox.objects.storage import Key, Object


class Traffic(Struct, frozen=True):
    """The requests to the pods that ``selector`` matches."""

    namespace: str
    selector: Selector
    requests_per_s: Callable[[float], float]  # of the unix time
    cpu_s_per_request: float = 0.01
    idle_cpu_cores: float = 0.005
    memory_bytes: float = 64 * 2**20
    memory_bytes_per_rps: float = 2**20
    leak_bytes_per_s: float = 0.0
    leaks_until_bytes: float = math.inf  # then nothing more is leaked


@dataclass(eq=False)
class Queue:
    """The messages that wait: producers fill the queue, the ready pods of a workload empty it."""

    namespace: str
    selector: Selector
    arrivals_per_s: Callable[[float], float]  # of unix seconds
    taken_per_s: float = 5.0  # by each ready pod
    messages: float = 0.0
    cpu_s_per_message = 0.02
    memory_bytes = 48.0 * 2**20

    def advance(self, now: float, elapsed: float, *, consumers: int) -> float:
        """Let ``elapsed`` seconds up to ``now`` pass; return how many messages were taken."""
        self.messages += self.arrivals_per_s(now) * elapsed
        taken = min(self.messages, consumers * self.taken_per_s * elapsed)
        self.messages -= taken
        # Halves of messages are nobody's backlog.
        if self.messages < 0.5:
            self.messages = 0.0
        return taken


class PretendedUsage(Struct):
    """One pod's counters and gauges."""

    requests: float = 0.0  # total
    cpu_s: float = 0.0  # total
    memory_bytes: float = 0.0
    rps: float = 0.0
    cpu_cores: float = 0.0
    leaked_bytes: float = 0.0  # since the container started


class Load:
    """Usage of all running pods."""

    def __init__(
        self, objects: SandboxObjects, kill: Callable[[Key], None] = lambda _key: None
    ) -> None:
        """``kill`` takes the pods that have used more memory than they may."""
        self._objects = objects
        self._kill = kill
        self.queues: dict[str, Queue] = {}
        self._traffic: dict[str, Traffic] = {}
        self._usage: dict[Key, PretendedUsage] = {}
        self._last: float | None = None

    def set(self, name: str, traffic: Traffic) -> None:
        """Set or replace the traffic called ``name``."""
        self._traffic[name] = traffic

    def advance(self, now: float) -> None:
        """Let time pass up to ``now`` (unix seconds)."""
        elapsed = max(now - self._last, 0.0) if self._last is not None else 0.0
        self._last = now
        running = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in self._objects.list("pods")
            if (pod.get("status") or {}).get("phase") == "Running"
        }
        self._usage = {key: self._usage.get(key, PretendedUsage()) for key in running}
        for usage in self._usage.values():
            usage.rps = usage.cpu_cores = 0.0
        for traffic in self._traffic.values():
            self._spread(traffic, running, now, elapsed)
        for queue in self.queues.values():
            self._consume(queue, running, now, elapsed)
        for usage in self._usage.values():
            usage.requests += usage.rps * elapsed
            usage.cpu_s += usage.cpu_cores * elapsed
        for key, pod in running.items():
            if self._usage[key].memory_bytes > _limit(pod, "memory"):
                self._usage[key].leaked_bytes = 0.0
                self._kill(key)

    def pods(self) -> Iterator[tuple[Object, PretendedUsage]]:
        """Yield every running pod with its usage as of the last ``advance``."""
        for key, usage in self._usage.items():
            pod = self._objects.find("pods", *key)
            if pod is not None:
                yield pod, usage

    def _consume(
        self, queue: Queue, running: dict[Key, Object], now: float, elapsed: float
    ) -> None:
        chosen = _chosen(running, queue.namespace, queue.selector)
        ready = [key for key, pod in chosen.items() if is_ready(pod)]
        for key in chosen:
            self._usage[key].memory_bytes = queue.memory_bytes
        taken = queue.advance(now, elapsed, consumers=len(ready))
        for key in ready:
            usage = self._usage[key]
            usage.rps = taken / len(ready) / elapsed if elapsed else 0.0
            usage.cpu_cores = min(usage.rps * queue.cpu_s_per_message, _limit(chosen[key], "cpu"))

    def _spread(
        self, traffic: Traffic, running: dict[Key, Object], now: float, elapsed: float
    ) -> None:
        chosen = _chosen(running, traffic.namespace, traffic.selector)
        ready = [key for key, pod in chosen.items() if is_ready(pod)]
        share = traffic.requests_per_s(now) / len(ready) if ready else 0.0
        for key, pod in chosen.items():
            usage = self._usage[key]
            limit = _limit(pod, "cpu")
            able = max(limit - traffic.idle_cpu_cores, 0.0) / traffic.cpu_s_per_request
            usage.rps = min(share, able) if key in ready else 0.0
            usage.cpu_cores = min(
                traffic.idle_cpu_cores + usage.rps * traffic.cpu_s_per_request, limit
            )
            used = traffic.memory_bytes + usage.rps * traffic.memory_bytes_per_rps
            usage.leaked_bytes = max(
                min(
                    usage.leaked_bytes + traffic.leak_bytes_per_s * elapsed,
                    traffic.leaks_until_bytes - used,
                ),
                0.0,
            )
            usage.memory_bytes = used + usage.leaked_bytes


def _chosen(running: dict[Key, Object], namespace: str, wanted: Selector) -> dict[Key, Object]:
    return {
        key: pod
        for key, pod in running.items()
        if key[0] == namespace and wanted.matches(pod["metadata"].get("labels") or {})
    }


def _limit(pod: Object, resource: str) -> float:
    """Return what a running pod may use: the limits that its node has actuated."""
    statuses = pod["status"].get("containerStatuses") or pod["spec"].get("containers", ())
    limits = [(container.get("resources") or {}).get("limits") or {} for container in statuses]
    if not limits or not all(resource in limit for limit in limits):
        return math.inf
    return sum(float(quantity.from_wire(limit[resource])) for limit in limits)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


_TYPES = {
    "http_requests_total": "counter",
    "container_cpu_usage_seconds_total": "counter",
    "container_memory_working_set_bytes": "gauge",
    "queue_messages": "gauge",
}


class ExposedSample(Struct, frozen=True, gc=False):
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(load: Load, now: float) -> list[ExposedSample]:
    """Return the metrics of all running pods and of the queues at ``now``."""
    load.advance(now)
    found = [
        ExposedSample(
            "queue_messages", {"namespace": queue.namespace, "queue": name}, queue.messages
        )
        for name, queue in load.queues.items()
    ]
    for pod, usage in load.pods():
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        labels = {"namespace": metadata["namespace"], "pod": metadata["name"], "node": node}
        found.append(ExposedSample("http_requests_total", labels, usage.requests))
        for inner, part in _containers(pod, labels):
            for name, value in (
                ("container_cpu_usage_seconds_total", usage.cpu_s),
                ("container_memory_working_set_bytes", usage.memory_bytes),
            ):
                found.append(ExposedSample(name, inner, value * part))
    return found


def metrics_page(load: Load, now: float) -> str:
    """Return ``samples`` in the text format, families together."""
    families = {name: [f"# TYPE {name} {kind}\n"] for name, kind in _TYPES.items()}
    for sample in samples(load, now):
        shown = ",".join(f"{key}={quote(text)}" for key, text in sample.labels.items() if text)
        families[sample.name].append(f"{sample.name}{{{shown}}} {sample.value!r}\n")
    return "".join(line for lines in families.values() if len(lines) > 1 for line in lines)


def _containers(pod: Object, labels: Mapping[str, str]) -> Iterable[tuple[dict[str, str], float]]:
    """Yield each container's labels and its share of the pod: the first works, the others idle."""
    names = [container["name"] for container in pod["spec"].get("containers", ())]
    rest = 0.02 * (len(names) - 1)
    for place, name in enumerate(names):
        yield {**labels, "container": name}, 0.02 if place else 1 - rest
