"""What the recommender says about itself, under upstream's names."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from vpa.recommender.publishing.quality import Quality
from vpa.step_seconds import StepSeconds

PREFIX = "vpa_recommender_"
_LATENCY = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
ObjectLabels = tuple[str, str, str, str, str]


class RecommenderMetrics:
    """The metrics of one recommender, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._objects = Gauge(
            PREFIX + "vpa_objects_count",
            "VPA objects by what is known of them.",
            ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"),
            registry=registry,
        )
        self.latency = Histogram(
            PREFIX + "recommendation_latency_seconds",
            "From the creation of a VPA to its first recommendation.",
            buckets=_LATENCY,
            registry=registry,
        )
        self.step = StepSeconds(PREFIX, "Time spent in the steps of a pass.", registry)
        self.states = Gauge(
            PREFIX + "aggregate_container_states_count",
            "Aggregates of containers that are tracked.",
            registry=registry,
        )
        # Upstream's counter has no _total, which only a gauge may lack here.
        self._responses = Gauge(
            PREFIX + "metric_server_responses",
            "Answers of the source of usage.",
            ("is_error", "client_name"),
            registry=registry,
        )
        self.writes = Counter(
            "podscale_vpa_writes",
            "Requests that write.",
            ("kind", "result"),
            registry=registry,
        )
        self.ooms = Counter(
            "podscale_vpa_ooms", "Out-of-memory kills that were recorded.", registry=registry
        )

        # A gauge for the same reason. Upstream reads the requests of all containers in every
        # pass; here they are read of those that were killed, so it counts less.
        self._reads = Gauge(
            "vpa_resources_get_resources_count",
            "Containers whose resources were read, by where they stood.",
            ("source",),
            registry=registry,
        )
        self.coordinated = Gauge(
            "podscale_vpa_coordinated",
            "VPAs whose target an HPA scales by their anchor.",
            registry=registry,
        )
        self.quality = Quality(registry)
        self.history = Gauge(
            "podscale_vpa_history_read_ratio",
            "How much of the history has been read from Prometheus.",
            registry=registry,
        )
        self._failures = Counter(
            "podscale_vpa_failures",
            "VPAs that failed alone, by step.",
            ("step",),
            registry=registry,
        )

    def failed(self, step: str) -> None:
        """Count a VPA that failed in a step; the others went on."""
        self._failures.labels(step).inc()

    def answered(self, *, is_error: bool, client: str) -> None:
        """Count one answer of the source of usage."""
        self._responses.labels(str(is_error).lower(), client).inc()

    def read(self, source: str) -> None:
        """Count one container whose requests were read; empty where nothing was."""
        if source:
            self._reads.labels(source).inc()

    def wrote(self, kind: str, result: str) -> None:
        """Count one request that writes."""
        self.writes.labels(kind, result).inc()

    def count(self, objects: Mapping[ObjectLabels, int]) -> None:
        """Set the numbers of VPAs of this pass."""
        self._objects.clear()
        for labels, number in objects.items():
            self._objects.labels(*labels).set(number)
