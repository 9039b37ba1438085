"""The recommender's command line: upstream's flags and ours, and what
those of ``--storage=prometheus`` ask Prometheus for at the start (``history_of``).
"""

from pathlib import Path

from msgspec import Struct

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.core.showable import shown_url
from podscale.core.times import duration
from podscale.core.times.duration import DurationError
from podscale.feed.options import PrometheusOptions
from podscale.kube.objects.vpa import ResourceList
from podscale.process.flags import leader_election
from podscale.serving.flags import Flag, Flags, wrong_values
from vpa.flags import COMMON, gate
from vpa.flags import problems as common_problems
from vpa.model.amounts import Windows, is_in_range
from vpa.model.checkpoint_selection import SaveBand
from vpa.model.estimation.annotations import HalfLives, VpaSettings
from vpa.model.estimation.estimator import EstimatorSettings, Percentiles
from vpa.model.estimation.recommendation import NodeShape, RecommenderSettings
from vpa.model.recommendations import DeadBand
from vpa.recommender.history import usage_history
from vpa.recommender.node_shapes import read_shapes

AUTOPILOT = "autopilot"  # the recommender that is named for Autopilot's amounts
_EXTERNAL = "usage comes from the feed or from metrics.k8s.io (--metrics-source)"
_UNUSED = "history has a deadline per slice of time"

UPSTREAM: tuple[Flag, ...] = (
    Flag("recommender-name", default="default", help="VPAs that name it, or nobody if default."),
    Flag("recommender-interval", "duration", 60.0, "How often recommendations are made.",
         must_be="greater than 0"),
    Flag("update-worker-count", "int", 10, "Status and checkpoint writes in flight.",
         must_be="at least 1"),
    Flag("storage", default="checkpoint",
         help="checkpoint, or prometheus: history is read at the start, nothing is saved.",
         choices=("checkpoint", "prometheus")),
    Flag("checkpoints-timeout", "duration", 60.0, "How long checkpoints may be written per pass.",
         must_be="greater than 0"),
    Flag("checkpoints-gc-interval", "duration", 600.0, "How often orphans are deleted.",
         must_be="greater than 0"),
    Flag("min-checkpoints", "int", 10, ignored="upstream has deprecated it"),
    Flag("memory-saver", "bool", False, "Track only pods that a VPA matches."),
    Flag("target-cpu-percentile", "float", 0.9, "Percentile of CPU usage.",
         must_be="above 0 and at most 1"),
    Flag("target-memory-percentile", "float", 0.9, "Percentile of memory peaks.",
         must_be="above 0 and at most 1"),
    Flag("recommendation-lower-bound-cpu-percentile", "float", 0.5, "Of the lower bound.",
         must_be="above 0 and at most 1"),
    Flag("recommendation-lower-bound-memory-percentile", "float", 0.5, "Of the lower bound.",
         must_be="above 0 and at most 1"),
    Flag("recommendation-upper-bound-cpu-percentile", "float", 0.95, "Of the upper bound.",
         must_be="above 0 and at most 1"),
    Flag("recommendation-upper-bound-memory-percentile", "float", 0.95, "Of the upper bound.",
         must_be="above 0 and at most 1"),
    Flag("recommendation-margin-fraction", "float", 0.15, "Added to every recommendation."),
    Flag("confidence-interval-cpu", "duration", 86400.0, "History at which the bounds halve.",
         must_be="greater than 0"),
    Flag("confidence-interval-memory", "duration", 86400.0, "History at which the bounds halve.",
         must_be="greater than 0"),
    Flag("pod-recommendation-min-cpu-millicores", "float", 25.0, "Least CPU of a pod."),
    Flag("pod-recommendation-min-memory-mb", "float", 250.0, "Least memory of a pod, MiB."),
    Flag("container-recommendation-max-allowed-cpu", help="Most CPU of any container."),
    Flag("container-recommendation-max-allowed-memory", help="Most memory of any container."),
    Flag("round-cpu-millicores", "int", 1, "CPU is rounded up to a multiple.",
         must_be="at least 1"),
    Flag("round-memory-bytes", "int", 1, "Memory is rounded up to a multiple.",
         must_be="at least 1"),
    Flag("humanize-memory", "bool", False, "Two decimals of a binary unit (deprecated)."),
    Flag("cpu-integer-post-processor-enabled", "bool", False,
         "Heed the annotation that asks for whole cores."),
    Flag("memory-aggregation-interval", "duration", 86400.0, "One peak counts per interval.",
         must_be="greater than 0"),
    Flag("memory-aggregation-interval-count", "int", 8, "Intervals that are remembered.",
         must_be="at least 1"),
    Flag("memory-histogram-decay-half-life", "duration", 86400.0, "How fast memory is forgotten.",
         must_be="greater than 0"),
    Flag("cpu-histogram-decay-half-life", "duration", 86400.0, "How fast CPU is forgotten.",
         must_be="greater than 0"),
    Flag("oom-bump-up-ratio", "float", 1.2, "Memory after an OOM, as a multiple."),
    Flag("oom-min-bump-up-bytes", "float", 104857600.0, "Least increase after an OOM."),
    Flag("use-external-metrics", "bool", False, ignored=_EXTERNAL),
    Flag("external-metrics-cpu-metric", ignored=_EXTERNAL),
    Flag("external-metrics-memory-metric", ignored=_EXTERNAL),
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
    Flag("address", default=":8942", help="Address of /metrics and /health-check; empty: none."),
    *leader_election("vpa-recommender-lease", is_on=False, namespace="kube-system"),
)  # fmt: skip

OWN: tuple[Flag, ...] = (
    Flag("metrics-source", default="",
         help="feed: Prometheus, read by this process (--config, --prometheus-url); api: "
              "metrics.k8s.io, whoever serves it. Empty: feed where --config is given.",
         choices=("feed", "api")),
    Flag("metrics-timeout", "duration", 30.0, "How long usage is waited for.",
         must_be="greater than 0"),
    Flag("status-deadband", "float", 0.02,
         "Bounds that moved by less are written after --status-max-age; 0: every change."),
    Flag("status-max-age", "duration", 600.0, "See --status-deadband."),
    Flag("cap-to-nodes", default="off",
         help="off; existing: no recommendation whose pod would fit no node of the cluster; or a "
              "file that lists shapes of nodes. Per VPA: vpa.podscale.io/cap-to-nodes."),
    Flag("service",
         help="NAMESPACE/NAME of the Service in front: keeps a CA in a Secret and in the "
              "APIService of the explanations."),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*COMMON, *UPSTREAM, *OWN)


class Options(Struct, frozen=True):
    name: str = "default"
    interval_s: float = 60.0
    workers: int = 10
    metrics_timeout_s: float = 30.0
    checkpoints_timeout_s: float = 60.0
    checkpoints_gc_s: float = 600.0
    settings: VpaSettings = VpaSettings()
    windows: Windows = Windows()
    per_vpa_config: bool = False
    memory_saver: bool = False
    status_band: DeadBand = DeadBand()
    save_band: SaveBand = SaveBand()
    shapes: tuple[NodeShape, ...] = ()  # of --cap-to-nodes=FILE
    history: usage_history.HistorySpan = usage_history.HistorySpan()
    sample_minutes: float | None = None  # what a sample covers; None: its source does not say
    namespaces: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # namespaces


def problems(flags: Flags) -> list[str]:
    """Return what makes these flags invalid, all at once."""
    found = [*common_problems(flags), *wrong_values(flags, (*UPSTREAM, *OWN))]
    url = flags.text("prometheus-address")
    if not url.startswith(("http://", "https://")):
        found.append(f"--prometheus-address {shown_url(url)}: not an http or https URL")
    for name in ("history-length", "history-resolution"):
        try:
            if duration.parse_prometheus(flags.text(name)) < 1:
                found.append(f"--{name} must be at least 1s")
        except DurationError as error:
            found.append(f"--{name}: {error.advice}")
    if flags.text("recommender-name") == AUTOPILOT:
        found.append("--recommender-name must not be autopilot, whose VPAs are Autopilot's")
    try:
        shapes_of(flags)
    except ValueError as error:
        found.append(f"--cap-to-nodes: {error}")
    for name in ("cpu", "memory"):
        flag = f"container-recommendation-max-allowed-{name}"
        try:
            most = _most(flags, name)
        except QuantityError as error:
            found.append(f"--{flag}: {error}")
        else:
            if most is not None and not is_in_range(name, most):
                found.append(f"--{flag}: {most} is no amount that a container can have")
    return found


def uses_feed(flags: Flags) -> bool:
    """Return whether usage is read from Prometheus by this process."""
    chosen = flags.text("metrics-source")
    return chosen == "feed" if chosen else "config" in flags.given


def options(flags: Flags) -> Options:
    """Return the choices of flags that ``problems`` found nothing wrong with."""
    interval = flags.seconds("recommender-interval")
    only = flags.text("vpa-object-namespace")
    return Options(
        name=flags.text("recommender-name"),
        interval_s=interval,
        workers=flags.number("update-worker-count"),
        metrics_timeout_s=flags.seconds("metrics-timeout"),
        checkpoints_timeout_s=flags.seconds("checkpoints-timeout"),
        checkpoints_gc_s=flags.seconds("checkpoints-gc-interval"),
        settings=VpaSettings(
            _settings(flags),
            HalfLives(
                flags.seconds("cpu-histogram-decay-half-life"),
                flags.seconds("memory-histogram-decay-half-life"),
            ),
            "file" if _is_file(flags) else flags.text("cap-to-nodes"),
        ),
        windows=Windows(
            flags.seconds("memory-aggregation-interval"),
            flags.number("memory-aggregation-interval-count"),
            flags.seconds("oom-bump-up-ratio"),
            flags.seconds("oom-min-bump-up-bytes"),
        ),
        per_vpa_config=gate(flags, "PerVPAConfig"),
        memory_saver=flags.switch("memory-saver"),
        status_band=DeadBand(flags.seconds("status-deadband"), flags.seconds("status-max-age")),
        shapes=shapes_of(flags),
        history=history_span(flags),
        sample_minutes=interval / 60.0 if uses_feed(flags) else None,
        namespaces=(only,) if only else (),
        ignored=flags.listing("ignored-vpa-object-namespaces"),
    )


def shapes_of(flags: Flags) -> tuple[NodeShape, ...]:
    """Return the shapes of ``--cap-to-nodes=FILE``; raises ``ValueError``. Blocking."""
    return read_shapes(Path(flags.text("cap-to-nodes"))) if _is_file(flags) else ()


def _is_file(flags: Flags) -> bool:
    return flags.text("cap-to-nodes") not in ("off", "existing")


def _settings(flags: Flags) -> RecommenderSettings:
    def of(resource: str) -> EstimatorSettings:
        return EstimatorSettings(
            Percentiles(
                flags.seconds(f"recommendation-lower-bound-{resource}-percentile"),
                flags.seconds(f"target-{resource}-percentile"),
                flags.seconds(f"recommendation-upper-bound-{resource}-percentile"),
            ),
            flags.seconds("recommendation-margin-fraction"),
            flags.seconds(f"confidence-interval-{resource}"),
        )

    most = {name: found for name in ("cpu", "memory") if (found := _most(flags, name)) is not None}
    return RecommenderSettings(
        cpu=of("cpu"),
        memory=of("memory"),
        min_cpu_milli=flags.seconds("pod-recommendation-min-cpu-millicores"),
        min_memory_mb=flags.seconds("pod-recommendation-min-memory-mb"),
        round_cpu_milli=flags.number("round-cpu-millicores"),
        round_memory_bytes=flags.number("round-memory-bytes"),
        humanize_memory=flags.switch("humanize-memory"),
        integer_cpu=flags.switch("cpu-integer-post-processor-enabled"),
        max_allowed=ResourceList(most),
    )


def _most(flags: Flags, resource: str) -> quantity.Quantity | None:
    text = flags.text(f"container-recommendation-max-allowed-{resource}")
    return quantity.parse(text) if text else None


def history_span(flags: Flags) -> usage_history.HistorySpan:
    """Return how far back and how dense."""
    return usage_history.HistorySpan(
        duration.parse_prometheus(flags.text("history-length")),
        round(duration.parse_prometheus(flags.text("history-resolution"))),
    )


def history_of(flags: Flags) -> usage_history.UsageHistory:
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
    return usage_history.UsageHistory(
        _prometheus(flags),
        (usage_history.UsageRangeQuery(f"rate({cpu})", pod, container, namespace),),
        (usage_history.UsageRangeQuery(memory, pod, container, namespace),),
        _labels(flags),
    )


def _labels(flags: Flags) -> usage_history.PodLabels | None:
    # A range selector was the work-around for upstream's instant query (D15); here the
    # query is a range already, and one more would not parse.
    metric = flags.text("metric-for-pod-labels")
    text, bracket, _ = metric.strip().rpartition("[")
    text = text if bracket else metric
    if not text:
        return None
    namespace, pod = flags.text("pod-namespace-label"), flags.text("pod-name-label")
    return usage_history.PodLabels(text, namespace, pod, flags.text("pod-label-prefix"))


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
