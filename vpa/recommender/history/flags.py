"""Flags of ``--storage=prometheus``: upstream's, and what they ask Prometheus for."""

from pathlib import Path

from podscale.core.showable import shown_url
from podscale.core.times import duration
from podscale.core.times.duration import DurationError
from podscale.feed.options import PrometheusOptions
from podscale.serving.flags import Flag, Flags
from vpa.recommender.history.usage_history import (
    HistorySpan,
    PodLabels,
    UsageHistory,
    UsageRangeQuery,
)

_UNUSED = "history has a deadline per slice of time"

HISTORY: tuple[Flag, ...] = (
    Flag("prometheus-address", default="http://prometheus.monitoring.svc",
         help="Prometheus of the history; with --config it is --prometheus-url."),
    Flag("prometheus-insecure", "bool", False, "Do not verify Prometheus's certificate."),
    Flag("prometheus-query-timeout", default="5m", ignored=_UNUSED),
    Flag("prometheus-cadvisor-job-name", default="kubernetes-cadvisor",
         help="Job label of the history's series; empty: any."),
    Flag("prometheus-bearer-token", help="Token for Prometheus."),
    Flag("prometheus-bearer-token-file", help="File of the token."),
    Flag("username", help="For basic authentication at Prometheus."),
    Flag("password", help="For basic authentication at Prometheus."),
    Flag("history-length", default="8d", help="How far history goes back."),
    Flag("history-resolution", default="5m", help="Step of history; upstream's is 1h."),
    Flag("history-cpu-metric", default="container_cpu_usage_seconds_total", help="A counter."),
    Flag("history-memory-metric", default="container_memory_working_set_bytes", help="A gauge."),
    Flag("pod-label-prefix", default="pod_label_", help="Of labels that are labels of pods."),
    Flag("metric-for-pod-labels", default='up{job="kubernetes-pods"}',
         help="Series that carry the labels of pods."),
    Flag("pod-namespace-label", default="kubernetes_namespace", help="In --metric-for-pod-labels."),
    Flag("pod-name-label", default="kubernetes_pod_name", help="In --metric-for-pod-labels."),
    Flag("container-namespace-label", default="namespace", help="In the history's metrics."),
    Flag("container-pod-name-label", default="pod_name", help="In the history's metrics."),
    Flag("container-name-label", default="name", help="In the history's metrics."),
)  # fmt: skip


def problems(flags: Flags) -> list[str]:
    found = []
    url = flags.text("prometheus-address")
    if not url.startswith(("http://", "https://")):
        found.append(f"--prometheus-address {shown_url(url)}: not an http or https URL")
    for name in ("history-length", "history-resolution"):
        try:
            if duration.parse_prometheus(flags.text(name)) < 1:
                found.append(f"--{name} must be at least 1s")
        except DurationError as error:
            found.append(f"--{name}: {error.advice}")
    return found


def span(flags: Flags) -> HistorySpan:
    """Return how far back and how dense."""
    return HistorySpan(
        duration.parse_prometheus(flags.text("history-length")),
        round(duration.parse_prometheus(flags.text("history-resolution"))),
    )


def past(flags: Flags) -> UsageHistory:
    """Return upstream's queries, by upstream's flags.

    They must stay upstream's, because recording rules and proxies are written for them.
    """
    namespace = flags.text("container-namespace-label")
    pod, container = flags.text("container-pod-name-label"), flags.text("container-name-label")
    selector = f'{pod}=~".+", {container}!="POD", {container}!=""'
    if job := flags.text("prometheus-cadvisor-job-name"):
        selector = f'job="{job}", {selector}'
    if only := flags.text("vpa-object-namespace"):
        selector = f'{selector}, {namespace}="{only}"'
    cpu = f"{flags.text('history-cpu-metric')}{{{selector}}}[{flags.text('history-resolution')}]"
    memory = f"{flags.text('history-memory-metric')}{{{selector}}}"
    return UsageHistory(
        _prometheus(flags),
        (UsageRangeQuery(f"rate({cpu})", pod, container, namespace),),
        (UsageRangeQuery(memory, pod, container, namespace),),
        _labels(flags),
    )


def _labels(flags: Flags) -> PodLabels | None:
    # A range selector was the work-around for upstream's instant query (D15); here the
    # query is a range already, and one more would not parse.
    metric = flags.text("metric-for-pod-labels")
    text, bracket, _ = metric.strip().rpartition("[")
    text = text if bracket else metric
    if not text:
        return None
    namespace, pod = flags.text("pod-namespace-label"), flags.text("pod-name-label")
    return PodLabels(text, namespace, pod, flags.text("pod-label-prefix"))


def _prometheus(flags: Flags) -> PrometheusOptions:
    token_file = flags.text("prometheus-bearer-token-file")
    return PrometheusOptions(
        url=flags.text("prometheus-address"),
        token=flags.text("prometheus-bearer-token") or None,
        token_file=Path(token_file) if token_file else None,
        username=flags.text("username") or None,
        password=flags.text("password") or None,
        is_insecure=flags.switch("prometheus-insecure"),
    )
