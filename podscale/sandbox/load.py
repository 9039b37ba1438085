"""What pods have to do, and what they use for it: the source of all metrics of the sandbox.

Requests to a workload are spread over its ready pods; a request costs CPU time, and CPU
stops at the container's limit. Counters go up between two looks by what was used.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from podscale.core import quantity
from podscale.core.selector import Selector
from podscale.sandbox.objects import Objects
from podscale.sandbox.storage import Key, Object
from podscale.sandbox.workloads import is_ready


class Traffic(Struct, frozen=True):
    """The requests to the pods that ``selector`` matches."""

    namespace: str
    selector: Selector
    requests_per_s: Callable[[float], float]  # of the unix time
    cpu_s_per_request: float = 0.01
    idle_cpu_cores: float = 0.005
    memory_bytes: float = 64 * 2**20
    memory_bytes_per_rps: float = 2**20


class Usage(Struct):
    """One pod's counters and gauges."""

    requests: float = 0.0  # total
    cpu_s: float = 0.0  # total
    memory_bytes: float = 0.0
    rps: float = 0.0
    cpu_cores: float = 0.0


class Load:
    """Usage of all running pods."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._traffic: dict[str, Traffic] = {}
        self._usage: dict[Key, Usage] = {}
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
        self._usage = {key: self._usage.get(key, Usage()) for key in running}
        for usage in self._usage.values():
            usage.rps = usage.cpu_cores = 0.0
        for traffic in self._traffic.values():
            self._spread(traffic, running, now)
        for usage in self._usage.values():
            usage.requests += usage.rps * elapsed
            usage.cpu_s += usage.cpu_cores * elapsed

    def pods(self) -> Iterator[tuple[Object, Usage]]:
        """Yield every running pod with its usage as of the last ``advance``."""
        for key, usage in self._usage.items():
            pod = self._objects.find("pods", *key)
            if pod is not None:
                yield pod, usage

    def _spread(self, traffic: Traffic, running: dict[Key, Object], now: float) -> None:
        chosen = {
            key: pod
            for key, pod in running.items()
            if key[0] == traffic.namespace
            and traffic.selector.matches(pod["metadata"].get("labels") or {})
        }
        ready = [key for key, pod in chosen.items() if is_ready(pod)]
        share = traffic.requests_per_s(now) / len(ready) if ready else 0.0
        for key, pod in chosen.items():
            usage = self._usage[key]
            limit = _cpu_limit(pod)
            able = max(limit - traffic.idle_cpu_cores, 0.0) / traffic.cpu_s_per_request
            usage.rps = min(share, able) if key in ready else 0.0
            usage.cpu_cores = min(
                traffic.idle_cpu_cores + usage.rps * traffic.cpu_s_per_request, limit
            )
            usage.memory_bytes = traffic.memory_bytes + usage.rps * traffic.memory_bytes_per_rps


def _cpu_limit(pod: Object) -> float:
    limits = [
        (container.get("resources") or {}).get("limits") or {}
        for container in pod["spec"].get("containers", ())
    ]
    if not limits or not all("cpu" in limit for limit in limits):
        return float("inf")
    return sum(float(quantity.from_wire(limit["cpu"])) for limit in limits)
