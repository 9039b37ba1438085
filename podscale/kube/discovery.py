"""Keeps a ``Mapper`` that knows what the API server serves now.

Reads aggregated discovery (v2), else the old documents one by one; an API group that
cannot be reached (an APIService that is down, perhaps our own) leaves the rest intact.
"""

from podscale.kube.api import Api
from podscale.kube.resource import Resource
from podscale.kube.restmapper import Mapper


class Discovery:
    """The current mapper and its renewal."""

    def __init__(
        self, api: Api, *, period_s: float = 60.0, min_gap_s: float = 5.0, timeout_s: float = 20.0
    ) -> None:
        raise NotImplementedError

    @property
    def mapper(self) -> Mapper:
        """The latest snapshot; an empty one before the first ``refresh``."""
        raise NotImplementedError

    @property
    def synced(self) -> bool:
        """Whether discovery has succeeded at least once."""
        raise NotImplementedError

    @property
    def failed_groups(self) -> tuple[str, ...]:
        """Groups whose resources could not be read at the last refresh (``group/version``)."""
        raise NotImplementedError

    async def refresh(self) -> Mapper:
        """Read discovery now; raises ``KubeError`` only when nothing at all could be read."""
        raise NotImplementedError

    async def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """As ``Mapper.resource_for``, but a miss refreshes first (at most every ``min_gap_s``)."""
        raise NotImplementedError

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        """As ``Mapper.for_kind``, but a miss refreshes first."""
        raise NotImplementedError

    async def run(self) -> None:
        """Refresh every ``period_s`` for ever; failures are logged and change nothing."""
        raise NotImplementedError
