"""What the nodes part says about itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge

PREFIX = "podscale_nodes_"


class NodesMetrics:
    """The metrics of one nodes part, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reasons = Gauge(
            PREFIX + "ballast", "Nodes by the reason for what their ballast or taint is.",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.held = Gauge(
            PREFIX + "ballast_requests", "What all ballast requests: cores, bytes.", ("resource",),
            registry=registry,
        )  # fmt: skip
        self.writes = Counter(
            PREFIX + "ballast_writes", "Writes of ballast and of taints by what became of "
            "them.", ("result",),
            registry=registry,
        )  # fmt: skip
        self.failures = Counter(
            PREFIX + "usage_failures", "Rounds that usage could not be read in.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.tainted = Gauge(
            PREFIX + "tainted", "Nodes that have the taint of mode taint.", registry=registry
        )
        self.rounds = Counter(
            PREFIX + "rounds", "Rounds over all nodes: decided, behind (the watches are not "
            "current), failed.", ("result",), registry=registry,
        )  # fmt: skip
        self.room_plans = Counter(
            PREFIX + "room_plans", "Resizes that wait for room by what was planned.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.room_evictions = Counter(
            PREFIX + "room_evictions", "Evictions for room by what became of them.", ("result",),
            registry=registry,
        )  # fmt: skip
        self.headroom = Gauge(
            PREFIX + "headroom_requests", "What headroom is to request: cores, bytes.",
            ("resource",), registry=registry,
        )  # fmt: skip
