"""The Prometheus queries of ``--storage=prometheus``, from upstream's flags.

Label and metric names are the user's; the queries must stay upstream's, because recording
rules and proxies are written for them.
"""

from typing import Literal

from msgspec import Struct

from podscale.core.times import duration
from podscale.core.times.duration import DurationError


class HistoryFlags(Struct, frozen=True):
    """Flags of upstream's recommender with their defaults."""

    length: str = "8d"
    resolution: str = "1h"
    cpu_metric: str = "container_cpu_usage_seconds_total"
    memory_metric: str = "container_memory_working_set_bytes"
    pod_labels_metric: str = 'up{job="kubernetes-pods"}'
    pod_label_prefix: str = "pod_label_"
    pod_namespace_label: str = "kubernetes_namespace"
    pod_name_label: str = "kubernetes_pod_name"
    container_namespace_label: str = "namespace"
    container_pod_label: str = "pod_name"
    container_name_label: str = "name"
    cadvisor_job: str = "kubernetes-cadvisor"
    namespace: str = ""


class HistoryQuery(Struct, frozen=True):
    """One request to Prometheus; ranges end now."""

    api: Literal["query", "query_range"]
    query: str
    length_s: float = 0.0
    step_s: float = 0.0


class InvalidDuration(Struct, frozen=True):
    """A flag that is not a Prometheus duration."""

    flag: str
    value: str


def history_queries(flags: HistoryFlags) -> list[HistoryQuery] | InvalidDuration:
    """Return the requests in order: CPU, memory, labels of pods."""
    lengths = []
    for flag, value in (
        ("history-length", flags.length),
        ("history-resolution", flags.resolution),
    ):
        try:
            lengths.append(duration.parse_prometheus(value))
        except DurationError:
            return InvalidDuration(flag, value)
    name = flags.container_name_label
    selector = f'{flags.container_pod_label}=~".+", {name}!="POD", {name}!=""'
    if flags.cadvisor_job:
        selector = f'job="{flags.cadvisor_job}", {selector}'
    if flags.namespace:
        selector = f'{selector}, {flags.container_namespace_label}="{flags.namespace}"'
    cpu = f"rate({flags.cpu_metric}{{{selector}}}[{flags.resolution}])"
    memory = f"{flags.memory_metric}{{{selector}}}"
    return [
        HistoryQuery("query_range", cpu, *lengths),
        HistoryQuery("query_range", memory, *lengths),
        HistoryQuery("query", flags.pod_labels_metric),
    ]
