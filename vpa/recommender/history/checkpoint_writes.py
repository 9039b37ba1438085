"""Checkpoints at the end of a pass: those that are worth it, oldest first, within a deadline."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from podscale.kube.client.errors import KubeError
from vpa.model.checkpoint_selection import CheckpointSelection
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.samples.membership import VpaKey
from vpa.recommender.flags import Options
from vpa.recommender.history.checkpoints import Checkpoints
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.recommender.workers import each
from vpa.stores import VpaStores

_log = structlog.get_logger()


class CheckpointWrites:
    """Keeps the checkpoint objects of one model, for one term of leadership."""

    def __init__(
        self,
        cluster: ClusterModel,
        checkpoints: Checkpoints,
        stores: VpaStores,
        options: Options,
        metrics: RecommenderMetrics,
        now: float,
    ) -> None:
        self._cluster = cluster
        self._saver = CheckpointSelection(cluster)
        self._checkpoints = checkpoints
        self._stores = stores
        self._options = options
        self._metrics = metrics
        self._collected_at = now

    async def maintain(self, now: float) -> None:
        """Write what is due, and now and then delete orphans; raises ``NotLeading``."""
        options = self._options
        wanted = [named for named in self._saver.due(now, options.save_band, options.interval_s)
                  if not self._is_loading(named[0])]  # fmt: skip
        saved = dict(zip(wanted, self._cluster.checkpoints(wanted, now), strict=True))
        written: list[Named] = []
        tried: list[Named] = []

        async def write(named: Named) -> None:
            tried.append(named)
            try:
                is_written = await self._checkpoints.write(named, *saved[named])
            except KubeError as error:
                self._metrics.wrote("checkpoint", "error")
                _log.warning("checkpoint not written", namespace=named[0].namespace,
                             vpa=named[0].name, error=str(error))  # fmt: skip
            else:
                if is_written:
                    self._metrics.wrote("checkpoint", "ok")
                    written.append(named)

        failed = partial(self._metrics.failed, "MaintainCheckpoints")
        try:
            async with asyncio.timeout(self._options.checkpoints_timeout_s):
                await each(wanted, write, workers=self._options.workers, failed=failed)
        except TimeoutError:
            _log.warning("checkpoints took too long", written=len(written), due=len(wanted))
        finally:
            # The next pass begins with what has waited longest, and ends with what fails.
            self._saver.failed(tried, now)
            self._saver.saved(written, now)
        if now - self._collected_at >= self._options.checkpoints_gc_s:
            self._collected_at = now
            if self._stores.vpas.is_current():
                await self._collect(lambda key: self._stores.vpas.get(*key) is not None)

    async def _collect(self, exists: Callable[[VpaKey], bool]) -> None:
        # A deadline of its own: behind slow writes upstream's never got its turn.
        try:
            async with asyncio.timeout(self._options.checkpoints_timeout_s):
                deleted = await self._checkpoints.collect(exists)
        except (KubeError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("orphaned checkpoints not collected", error=str(error))
            return
        if deleted:
            _log.info("orphaned checkpoints deleted", count=deleted)

    def _is_loading(self, key: VpaKey) -> bool:
        # Whoever set the condition will write a better checkpoint than ours.
        vpa = self._stores.vpa(key)
        found = (vpa.status.conditions if vpa is not None else None) or ()
        return any(each.type == "FetchingHistory" and each.status == "True" for each in found)
