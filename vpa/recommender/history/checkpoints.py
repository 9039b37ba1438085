"""Checkpoint objects: loaded before they are written, deleted when orphaned.

All are listed once, at the start. One whose VPA is not there then, or that somebody else
has stored since, is read when it is met: written over, it would take history with it.
A name ``<vpa>-<container>`` can mean two pairs (D9): the spec says which one an object is
of, and the second pair gets a name of its own.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial

import msgspec
import structlog
from msgspec import Raw, Struct

from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import JSON_PATCH, Api
from podscale.kube.client.errors import KubeError, ObjectNotFound, WriteConflict
from podscale.kube.client.resource import VPA_CHECKPOINTS, VPAS
from podscale.kube.client.wire import ListOf, ObjectMeta, decode, encode
from vpa.model.checkpoint_selection import CheckpointSelection
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.samples import checkpoints as histograms
from vpa.model.samples.membership import VpaKey
from vpa.recommender.flags import Options
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.recommender.workers import each
from vpa.stores import VpaStores

_log = structlog.get_logger()

_PAGE = "500"
_TIMEOUT_S = 10.0
_LATE_TIMEOUT_S = 30.0  # of a pass, for those that were not there at the start


class StoredCheckpoint(Struct, frozen=True):
    """A VerticalPodAutoscalerCheckpoint; ``vpa.model.samples.checkpoints`` reads its status."""

    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")


class _Spec(Struct, frozen=True, rename="camel"):
    vpa_object_name: str = ""
    container_name: object = ""  # orphans are collected whatever it is


class _Known(Struct, frozen=True):
    # An object that exists, under which name and with which annotations.
    name: str
    annotations: Mapping[str, str]


class Checkpoints:
    """The checkpoint objects of the VPAs in one model."""

    def __init__(
        self, api: Api, scopes: tuple[str, ...], ignored: Collection[str] = frozenset()
    ) -> None:
        """``ignored``: namespaces whose checkpoints are another's to collect."""
        self._api = api
        self._scopes = scopes
        self._ignored = ignored
        self._known: dict[Named, _Known] = {}
        # By namespace and object name; None: its spec does not say whose it is.
        self._names: dict[tuple[str, str], Named | None] = {}
        self._unread: dict[Named, None] = {}  # exist, and are not in the model
        self._sent: set[Named] = set()  # creations without an answer: they may have come about
        self.loaded_until: dict[tuple[str, str], float] = {}  # namespace, container: last write

    async def load(self, cluster: ClusterModel, now: float) -> int:
        """Put what earlier processes have learned into the model; return how many loaded.

        Damaged ones are logged and left out. Raises ``KubeError`` when they cannot be listed;
        a cluster without the CRD has none.
        """
        loaded = 0
        try:
            async for stored in self._all():
                loaded += self._load(cluster, stored, now)
        except ObjectNotFound:
            _log.warning("no checkpoints: their CRD is not installed")
        return loaded

    async def load_late(self, cluster: ClusterModel, now: float) -> None:
        """Load what belongs to VPAs that were not in the model before; never raises
        ``KubeError``: what cannot be read now is read in the next pass.
        """
        late = [named for named in self._unread if named[0] in cluster.vpas]
        try:
            async with asyncio.timeout(_LATE_TIMEOUT_S if late else None):
                for named in late:
                    del self._unread[named]
                    self._unread[named] = None  # the last in the next pass, should it fail
                    await self._load_one(cluster, named, now)
        except TimeoutError:
            _log.warning("checkpoints of new VPAs took too long, the rest follows")

    async def write(
        self, named: Named, checkpoint: histograms.Checkpoint, extra: str | None
    ) -> bool:
        """Write one checkpoint; False where one is stored that has to be loaded first.

        Raises ``KubeError``.
        """
        key, container = named
        if named in self._unread:
            return False
        known = self._known.get(named)
        if known is None:
            return await self._create(key, container, checkpoint, extra)
        annotations = _annotated(known.annotations, extra)
        patch = [
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
            {"op": "add", "path": "/status", "value": histograms.to_wire(checkpoint)},
        ]
        try:
            await self._api.request(
                "PATCH",
                VPA_CHECKPOINTS.path(key.namespace, known.name),
                body=encode(patch),
                content_type=JSON_PATCH,
                timeout_s=_TIMEOUT_S,
            )
        except ObjectNotFound:
            self._forget(named)
            return await self._create(key, container, checkpoint, extra)
        self._known[named] = _Known(known.name, annotations)
        return True

    async def collect(self, exists: Callable[[VpaKey], bool]) -> int:
        """Delete checkpoints whose VPA is gone, as the store and the API server both say."""
        deleted = 0
        gone: dict[VpaKey, bool] = {}
        async for stored in self._all():
            key = VpaKey(stored.metadata.namespace, _spec(stored).vpa_object_name)
            if not key.name or key.namespace in self._ignored or exists(key):
                continue
            if key not in gone:
                gone[key] = await self._is_gone(key)
            if not gone[key]:
                continue
            path = VPA_CHECKPOINTS.path(key.namespace, stored.metadata.name)
            try:
                await self._api.request("DELETE", path, timeout_s=_TIMEOUT_S)
            except ObjectNotFound:
                continue
            finally:
                self._names.pop((key.namespace, stored.metadata.name), None)
                named = _named(stored)
                if named is not None:
                    self._forget(named)
            deleted += 1
        return deleted

    def _load(self, cluster: ClusterModel, stored: StoredCheckpoint, now: float) -> int:
        named = _named(stored)
        meta = stored.metadata
        if named is None:
            self._names[meta.namespace, meta.name] = None
            return 0
        # Its name is taken, whatever it holds and whoever's it is.
        self._remember(named, meta.name, meta.annotations or {})
        key, container = named
        if key not in cluster.vpas:
            self._unread[named] = None
            return 0
        self._unread.pop(named, None)  # one that is damaged is mended by the next write
        try:
            checkpoint = histograms.from_wire(stored.status)
            text = (meta.annotations or {}).get(histograms.ANNOTATION)
            extra = histograms.decode_extra(text, histograms.wire_time(checkpoint.updated_s))
            cluster.load_checkpoint(key, container, checkpoint, extra, now)
        except histograms.CheckpointError as error:
            _log.warning("checkpoint not loaded", namespace=meta.namespace, name=meta.name,
                         error=str(error))  # fmt: skip
            return 0
        place = (key.namespace, container)
        at = checkpoint.updated_s
        self.loaded_until[place] = max(self.loaded_until.get(place, at), at)
        return 1

    async def _load_one(self, cluster: ClusterModel, named: Named, now: float) -> None:
        place = named[0].namespace, self._known[named].name
        try:
            stored = await self._get(*place)
            _log.info("checkpoint loaded late", namespace=place[0], name=place[1],
                      loaded=bool(self._load(cluster, stored, now)))  # fmt: skip
        except ObjectNotFound:
            self._forget(named)
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("checkpoint not readable yet", namespace=place[0], name=place[1],
                         error=str(error))  # fmt: skip

    async def _create(
        self, key: VpaKey, container: str, checkpoint: histograms.Checkpoint, extra: str | None
    ) -> bool:
        named = (key, container)
        name = self._free_name(named)
        annotations = _annotated({}, extra)
        body = {
            "apiVersion": VPA_CHECKPOINTS.api_version,
            "kind": VPA_CHECKPOINTS.kind,
            "metadata": {"name": name, "namespace": key.namespace, "annotations": annotations},
            "spec": {"vpaObjectName": key.name, "containerName": container},
            "status": histograms.to_wire(checkpoint),
        }
        was_sent = named in self._sent
        self._sent.add(named)
        try:
            path = VPA_CHECKPOINTS.path(key.namespace)
            await self._api.request("POST", path, body=encode(body), timeout_s=_TIMEOUT_S)
        except WriteConflict as error:
            if error.reason != "AlreadyExists":
                raise
            if not was_sent:
                self._sent.discard(named)
            if not await self._adopt(named, name):
                raise
            return await self.write(named, checkpoint, extra)
        self._sent.discard(named)
        self._remember(named, name, annotations)
        return True

    async def _adopt(self, named: Named, name: str) -> bool:
        # Learn whose the object is that has the name; False where there is no other name.
        place = named[0].namespace, name
        stored = await self._get(*place)
        owner = _named(stored)
        if owner is not None and owner not in self._known:
            self._remember(owner, name, stored.metadata.annotations or {})
            # What is not in the model is loaded before it is written, but for our own.
            if owner not in self._sent:
                self._unread[owner] = None
        self._names[place] = owner
        self._sent.discard(named)
        return owner == named or self._free_name(named) != name

    async def _get(self, namespace: str, name: str) -> StoredCheckpoint:
        path = VPA_CHECKPOINTS.path(namespace, name)
        answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
        return decode(answer.body, StoredCheckpoint)

    def _free_name(self, named: Named) -> str:
        key, container = named
        name = f"{key.name}-{container}"
        if self._names.get((key.namespace, name), named) == named:
            return name
        mark = hashlib.sha256(f"{key.name}/{container}".encode()).hexdigest()[:8]
        return f"{name}-{mark}"

    def _remember(self, named: Named, name: str, annotations: Mapping[str, str]) -> None:
        self._known[named] = _Known(name, annotations)
        self._names[named[0].namespace, name] = named

    def _forget(self, named: Named) -> None:
        self._unread.pop(named, None)
        known = self._known.pop(named, None)
        if known is not None:
            self._names.pop((named[0].namespace, known.name), None)

    async def _is_gone(self, key: VpaKey) -> bool:
        try:
            await self._api.request("GET", VPAS.path(*key), timeout_s=_TIMEOUT_S)
        except ObjectNotFound:
            return True
        return False

    async def _all(self) -> AsyncIterator[StoredCheckpoint]:
        for scope in self._scopes:
            query = {"limit": _PAGE}
            while True:
                answer = await self._api.request("GET", VPA_CHECKPOINTS.path(scope), query=query)
                page = decode(answer.body, ListOf[StoredCheckpoint])
                for stored in page.items or ():
                    yield stored
                if not page.metadata.continue_:
                    break
                query = {"limit": _PAGE, "continue": page.metadata.continue_}
                await asyncio.sleep(0)


def _spec(stored: StoredCheckpoint) -> _Spec:
    try:
        return decode_json(stored.spec, _Spec)
    except msgspec.DecodeError:
        return _Spec()


def _named(stored: StoredCheckpoint) -> Named | None:
    spec = _spec(stored)
    key, container = VpaKey(stored.metadata.namespace, spec.vpa_object_name), spec.container_name
    return (key, container) if key.name and container and isinstance(container, str) else None


def _annotated(annotations: Mapping[str, str], extra: str | None) -> dict[str, str]:
    kept = {name: text for name, text in annotations.items() if name != histograms.ANNOTATION}
    return {**kept, histograms.ANNOTATION: extra} if extra is not None else kept


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
        self._cluster, self._checkpoints, self._stores = cluster, checkpoints, stores
        self._saver = CheckpointSelection(cluster)
        self._options, self._metrics = options, metrics
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
                await self._collect()

    async def _collect(self) -> None:
        # A deadline of its own: behind slow writes upstream's never got its turn.
        try:
            async with asyncio.timeout(self._options.checkpoints_timeout_s):
                deleted = await self._checkpoints.collect(
                    lambda key: self._stores.vpas.get(*key) is not None
                )
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
