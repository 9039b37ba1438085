"""Checkpoint objects: listed once, written when the model says so, deleted when orphaned.

A name ``<vpa>-<container>`` can mean two pairs (D9): the spec says which one an object is
of, and the second pair gets a name of its own.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.api import JSON_PATCH, Api
from podscale.kube.errors import ObjectNotFound
from podscale.kube.resource import VPA_CHECKPOINTS, VPAS
from podscale.kube.wire import ListOf, decode, encode
from vpa.model.checkpoint import Checkpoint, CheckpointError, from_wire, to_wire
from vpa.model.cluster import Cluster
from vpa.model.groups import Named
from vpa.model.membership import VpaKey
from vpa.model.open_windows import ANNOTATION
from vpa.model.open_windows import decode as decode_extra
from vpa.stored import StoredCheckpoint

_log = structlog.get_logger()

_PAGE = "500"
_TIMEOUT_S = 10.0


class _Spec(Struct, frozen=True, rename="camel"):
    vpa_object_name: str = ""
    container_name: str = ""


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
        self._names: dict[tuple[str, str], Named] = {}  # namespace and object name
        self.loaded_until: dict[tuple[str, str], float] = {}  # namespace, container: last write

    async def load(self, cluster: Cluster, now: float) -> int:
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

    async def write(self, named: Named, checkpoint: Checkpoint, extra: str | None) -> None:
        """Write one checkpoint; raises ``KubeError``."""
        key, container = named
        known = self._known.get(named)
        if known is None:
            await self._create(key, container, checkpoint, extra)
            return
        annotations = _annotated(known.annotations, extra)
        patch = [
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
            {"op": "add", "path": "/status", "value": to_wire(checkpoint)},
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
            await self._create(key, container, checkpoint, extra)
            return
        self._known[named] = _Known(known.name, annotations)

    async def collect(self, exists: Callable[[VpaKey], bool]) -> int:
        """Delete checkpoints whose VPA is gone, as the store and the API server both say."""
        deleted = 0
        gone: dict[VpaKey, bool] = {}
        async for stored in self._all():
            named = _named(stored)
            if named is None or named[0].namespace in self._ignored or exists(named[0]):
                continue
            key = named[0]
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
                self._forget(named)
            deleted += 1
        return deleted

    def _load(self, cluster: Cluster, stored: StoredCheckpoint, now: float) -> int:
        named = _named(stored)
        if named is None:
            return 0
        meta = stored.metadata
        key, container = named
        if key not in cluster.vpas:
            return 0
        try:
            status = msgspec.json.decode(stored.status)
            checkpoint = from_wire(status)
            text = (meta.annotations or {}).get(ANNOTATION)
            extra = decode_extra(text, status.get("lastUpdateTime"))
            cluster.load_checkpoint(key, container, checkpoint, extra, now)
        except (CheckpointError, msgspec.DecodeError) as error:
            _log.warning("checkpoint not loaded", namespace=meta.namespace, name=meta.name,
                         error=str(error))  # fmt: skip
            return 0
        finally:
            # Its name is taken, whatever it holds; the next write mends it.
            self._remember(named, meta.name, meta.annotations or {})
        place = (key.namespace, container)
        at = checkpoint.updated_s
        self.loaded_until[place] = max(self.loaded_until.get(place, at), at)
        return 1

    async def _create(
        self, key: VpaKey, container: str, checkpoint: Checkpoint, extra: str | None
    ) -> None:
        named = (key, container)
        name = self._free_name(named)
        annotations = _annotated({}, extra)
        body = {
            "apiVersion": VPA_CHECKPOINTS.api_version,
            "kind": VPA_CHECKPOINTS.kind,
            "metadata": {"name": name, "namespace": key.namespace, "annotations": annotations},
            "spec": {"vpaObjectName": key.name, "containerName": container},
            "status": to_wire(checkpoint),
        }
        await self._api.request(
            "POST",
            VPA_CHECKPOINTS.path(key.namespace),
            body=encode(body),
            timeout_s=_TIMEOUT_S,
        )
        self._remember(named, name, annotations)

    def _free_name(self, named: Named) -> str:
        key, container = named
        name = f"{key.name}-{container}"
        other = self._names.get((key.namespace, name))
        if other is None or other == named:
            return name
        mark = hashlib.sha256(f"{key.name}/{container}".encode()).hexdigest()[:8]
        return f"{name}-{mark}"

    def _remember(self, named: Named, name: str, annotations: Mapping[str, str]) -> None:
        self._known[named] = _Known(name, annotations)
        self._names[named[0].namespace, name] = named

    def _forget(self, named: Named) -> None:
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


def _named(stored: StoredCheckpoint) -> Named | None:
    try:
        spec = msgspec.json.decode(stored.spec, type=_Spec)
    except msgspec.DecodeError:
        return None
    if not spec.vpa_object_name or not spec.container_name:
        return None
    return VpaKey(stored.metadata.namespace, spec.vpa_object_name), spec.container_name


def _annotated(annotations: Mapping[str, str], extra: str | None) -> dict[str, str]:
    kept = {name: text for name, text in annotations.items() if name != ANNOTATION}
    return {**kept, ANNOTATION: extra} if extra is not None else kept
