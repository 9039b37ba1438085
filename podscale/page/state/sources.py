"""What the page looks at: parts that run in the same process, as far as they do."""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from hpa.history.decision_log import DecisionLog
from podscale.core.metrics import MetricsProvider
from podscale.kube.columns.pods import PodStore
from podscale.nodes.rounds import DecidedNodes
from podscale.page.state.feed_health import FeedSource
from vpa.decisions.decisions import KnownSizing
from vpa.model.samples.membership import VpaKey


class Vpas(Protocol):
    """What recommender and updater know now of each VPA: a ``vpa.decisions.api.SizingApi``."""

    def keys(self) -> Iterable[VpaKey]:
        """Return the VPAs that are recommended for here."""

    def sized(self, key: VpaKey) -> KnownSizing | None:
        """Return one of them; None: it is gone."""


class PageSources(Struct, frozen=True):
    """Everything the page reads. What does not run here is None."""

    traces: DecisionLog | None = None
    vpas: Vpas | None = None
    pods: PodStore | None = None
    provider: MetricsProvider | None = None
    feed: FeedSource | None = None
    is_leader: Callable[[], bool] = lambda: True
    nodes: Callable[[], DecidedNodes | None] = lambda: None
