"""The sandbox's pods as Prometheus sees them: one page in the text format.

Names and labels are those of cadvisor and of a typical web server, so that the usual
rules fit. Prometheus must scrape it with ``honor_labels: true``.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.sandbox.load.traffic import Load
from podscale.sandbox.objects.storage import Object

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
        labels = _labels(pod)
        found.append(ExposedSample("http_requests_total", labels, usage.requests))
        for inner, part in _containers(pod, labels):
            found += [
                ExposedSample("container_cpu_usage_seconds_total", inner, usage.cpu_s * part),
                ExposedSample(
                    "container_memory_working_set_bytes", inner, usage.memory_bytes * part
                ),
            ]
    return found


def page(load: Load, now: float) -> str:
    """Return ``samples`` in the text format, families together."""
    lines: dict[str, list[str]] = {name: [] for name in _TYPES}
    for sample in samples(load, now):
        lines[sample.name].append(_line(sample.name, sample.labels, sample.value))
    return "".join(
        text for name, kind in _TYPES.items() for text in _family(name, kind, lines[name])
    )


def _labels(pod: Object) -> dict[str, str]:
    metadata = pod["metadata"]
    return {
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
        "node": pod["spec"].get("nodeName", ""),
    }


def _containers(pod: Object, labels: Mapping[str, str]) -> Iterable[tuple[dict[str, str], float]]:
    """Yield each container's labels and its share of the pod: the first works, the others idle."""
    names = [container["name"] for container in pod["spec"].get("containers", ())]
    rest = 0.02 * (len(names) - 1)
    for place, name in enumerate(names):
        yield {**labels, "container": name}, 0.02 if place else 1 - rest


def _family(name: str, kind: str, lines: list[str]) -> list[str]:
    return [f"# TYPE {name} {kind}\n", *lines] if lines else []


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f"{key}={quote(text)}" for key, text in labels.items() if text)
    return f"{name}{{{shown}}} {value!r}\n"
