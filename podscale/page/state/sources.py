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


class SizedVpa(Struct, frozen=True):
    """One VPA as the recommender and the updater see it now."""

    known: KnownSizing
    selector: str  # of its pods; empty: not known


class Vpas(Protocol):
    """The VPA's parts."""

    def keys(self) -> Iterable[VpaKey]:
        """Return the VPAs that are recommended for here."""

    def sized(self, key: VpaKey) -> SizedVpa | None:
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
