"""What the nodes part says about itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge

PREFIX = "podscale_nodes_"


class NodesMetrics:
    """The metrics of one nodes part, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        self.reasons = gauge(
            "ballast", "Nodes by the reason for what their ballast or taint is.", "reason"
        )
        self.held = gauge(
            "ballast_requests", "What all ballast requests: cores, bytes.", "resource"
        )
        self.writes = counter(
            "ballast_writes", "Writes of ballast and of taints by what became of them.", "result"
        )
        self.renewals = counter(
            "ballast_renewals", "Ballast pods that were to be made anew, by what became of it.",
            "result",
        )  # fmt: skip
        self.failures = counter(
            "usage_failures", "Rounds that usage could not be read in.", "reason"
        )
        self.tainted = gauge("tainted", "Nodes that have the taint of mode taint.")
        self.rounds = counter(
            "rounds", "Rounds over all nodes: decided, behind (the watches are not current), "
            "failed.", "result",
        )  # fmt: skip
        self.room_plans = counter(
            "room_plans", "Resizes that wait for room by what was planned.", "reason"
        )
        self.room_evictions = counter(
            "room_evictions", "Evictions for room by what became of them.", "result"
        )
        self.headroom = gauge(
            "headroom_requests", "What headroom requests, as written: cores, bytes.", "resource"
        )
        self.headroom_rounds = counter(
            "headroom_rounds", "Rounds over all HPA decisions for headroom: done, failed.", "result"
        )
