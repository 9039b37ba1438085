"""The VPA's parts of this process as the page reads them. A ``sources.Vpas``."""

from collections.abc import Callable, Iterable

from podscale.page.state.sources import SizedVpa
from vpa.decisions.api import SizingApi
from vpa.model.samples.membership import VpaKey
from vpa.recommender.loop import Recommender


class RecommendedVpas:
    """The VPAs of a recommender, with what an updater beside it has decided."""

    def __init__(
        self, recommender: Recommender, decisions: SizingApi, is_leader: Callable[[], bool]
    ) -> None:
        """``decisions`` knows the updater, where one runs here."""
        self._recommender = recommender
        self._decisions = decisions
        self._is_leader = is_leader

    def keys(self) -> Iterable[VpaKey]:
        """Return the VPAs that are recommended for here."""
        # Who led before still holds what it decided then.
        return list(self._recommender.held) if self._is_leader() else ()

    def sized(self, key: VpaKey) -> SizedVpa | None:
        """Return one of them; None: it is gone."""
        held = self._recommender.held.get(key)
        if held is None or key not in self._recommender.cluster.vpas:
            return None
        selector = held.resolved.selector
        return SizedVpa(self._decisions.known(key), "" if selector is None else str(selector))
