"""What every part of the VPA sees of the cluster: one set of watches per process."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from msgspec import Raw

from podscale.core.json_decoder import JsonDecoder
from podscale.kube.client.api import JSON_PATCH, Api
from podscale.kube.client.resource import LIMIT_RANGES, NODES, PDBS, PODS, VPAS, Resource
from podscale.kube.client.wire import Bounded, HasMetadata, ObjectMeta, decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import KindResources
from podscale.kube.informer.fed_store import Change, Sink
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects import vpa as objects
from podscale.kube.objects.cluster import Node, PodDisruptionBudget
from podscale.kube.objects.pod import Pod
from podscale.process.part import Shared
from podscale.serving.flags import Flags
from vpa import flags as flags_
from vpa.capping import LimitRanges, LimitRangeSpec, merged
from vpa.model.samples.membership import VpaKey
from vpa.targets import Workloads

T = TypeVar("T", bound=HasMetadata)

_log = structlog.get_logger()
_WRITE_TIMEOUT_S = 10.0

_LIMITS = JsonDecoder(LimitRangeSpec, dec_hook=objects.decode_hook)
Listener = Callable[[VpaKey, objects.Vpa | None], None]


class StoredLimitRange(Bounded, frozen=True):
    """A LimitRange; its spec is read on its own, as a VPA's."""

    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")


class VpaStores:
    """VPAs, pods, LimitRanges, nodes, disruption budgets and workloads."""

    def __init__(
        self,
        api: Api,
        kinds: KindResources,
        *,
        namespaces: Sequence[str] = (),
        ignored: Sequence[str] = (),
        pods: PodStore | None = None,
        feeds_pods: bool = True,
        needs_pods: bool = True,
        needs_nodes: bool = False,
        needs_budgets: bool = False,
    ) -> None:
        """``namespaces``: only these, none named is all; ``ignored`` VPAs do not exist for us.
        ``feeds_pods``: nobody else feeds ``pods``. ``needs_pods``: decisions look at running
        ones (a webhook is sent those that it decides about)."""
        self._api = api
        self.scopes = tuple(namespaces) or ("",)
        self._ignored = frozenset(ignored)
        self.vpas: Store[objects.StoredVpa] = Store(self.scopes)
        self.pods = PodStore(self.scopes) if pods is None else pods
        self._feeds_pods = feeds_pods and needs_pods
        self._needs_pods = needs_pods
        self._needs_nodes = needs_nodes
        self._needs_budgets = needs_budgets
        self.limit_ranges: Store[StoredLimitRange] = Store(self.scopes)
        self.nodes: Store[Node] = Store()
        self.budgets: Store[PodDisruptionBudget] = Store(self.scopes)
        self.workloads = Workloads(api, kinds, self.scopes)
        self._read: dict[VpaKey, objects.Vpa] = {}
        self._unreadable: dict[VpaKey, str] = {}
        self._ranges: dict[str, LimitRanges] = {}
        self._listeners: list[Listener] = []
        self.vpas.subscribe(self._vpa_changed)
        self.limit_ranges.subscribe(self._range_changed)

    async def run(self, rhythm: WatchTiming = DEFAULT_RHYTHM) -> None:
        """Feed every store for ever."""

        def watch(what: Resource, as_: type[T], store: Sink[T]) -> None:
            source = WatchSource(what, as_, rhythm=rhythm)
            group.create_task(Reflector(self._api, source, store).run())

        async with asyncio.TaskGroup() as group:
            watch(VPAS, objects.StoredVpa, self.vpas)
            if self._feeds_pods:
                watch(PODS, Pod, self.pods)
            watch(LIMIT_RANGES, StoredLimitRange, self.limit_ranges)
            if self._needs_nodes:
                watch(NODES, Node, self.nodes)
            if self._needs_budgets:
                watch(PDBS, PodDisruptionBudget, self.budgets)
            group.create_task(self.workloads.run(rhythm))

    async def wait_synced(self) -> None:
        """Wait for the first lists of everything a decision needs."""
        await self.vpas.wait_synced()
        if self._needs_pods:
            await self.pods.wait_synced()
        await self.limit_ranges.wait_synced()
        await self.workloads.wait_synced()

    @property
    def is_synced(self) -> bool:
        """Whether VPAs, pods and LimitRanges have been listed, as far as they are needed."""
        pods = self.pods.is_synced or not self._needs_pods
        return self.vpas.is_synced and pods and self.limit_ranges.is_synced

    def is_current(self) -> bool:
        """Whether the watches may be believed: otherwise nothing is disturbed."""
        return (
            self.vpas.is_current()
            and (self.pods.is_current() or not self._needs_pods)
            and self.limit_ranges.is_current()
            and self.workloads.is_current()  # sizes of groups, and who owns a pod
        )

    def subscribe(self, listener: Listener) -> None:
        """Call back for every VPA that is new, changed, or (None) gone or unreadable."""
        self._listeners.append(listener)

    def all_vpas(self) -> Iterator[tuple[VpaKey, objects.Vpa]]:
        """Yield every VPA that can be read."""
        yield from list(self._read.items())

    def vpa(self, key: VpaKey) -> objects.Vpa | None:
        return self._read.get(key)

    async def patch(
        self, api: Api, vpa: objects.Vpa, patch: Sequence[Mapping[str, Any]], *subresource: str
    ) -> None:
        """Patch a VPA that is still as it was decided about, and take in the answer; raises
        ``KubeError`` and ``DecodeError``.
        """
        meta = vpa.metadata
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version}
        answer = await api.request(
            "PATCH",
            VPAS.path(meta.namespace, meta.name, *subresource),
            body=encode([test, *patch]),
            content_type=JSON_PATCH,
            timeout_s=_WRITE_TIMEOUT_S,
        )
        self.vpas.accept(decode(answer.body, objects.StoredVpa))

    def ranges(self, namespace: str) -> LimitRanges:
        """Return the merged LimitRanges of a namespace."""
        known = self._ranges.get(namespace)
        if known is None:
            found: list[objects.LimitRangeItem] = []
            for stored in self.limit_ranges.values(namespace):
                try:
                    found += objects.read(_LIMITS, stored.spec, "spec").limits
                except objects.ObjectError as error:
                    name = stored.metadata.name
                    _log.warning("LimitRange not read", namespace=namespace, name=name,
                                 error=str(error))  # fmt: skip
            known = LimitRanges(merged(found, "Container"), merged(found, "Pod"))
            if found:  # a namespace without any costs nothing to look at again
                self._ranges[namespace] = known
        return known

    def _vpa_changed(self, change: Change[objects.StoredVpa]) -> None:
        key = VpaKey(change.namespace, change.name)
        if change.namespace in self._ignored:
            return
        vpa: objects.Vpa | None = None
        if change.new is not None:
            try:
                vpa = objects.vpa_of(change.new)
            except objects.ObjectError as error:
                if self._unreadable.get(key) != str(error):
                    _log.warning("VPA not read", **key._asdict(), error=str(error))
                self._unreadable[key] = str(error)
        if vpa is None:
            self._read.pop(key, None)
        else:
            self._read[key] = vpa
        if vpa is not None or change.new is None:
            self._unreadable.pop(key, None)
        for listener in self._listeners:
            listener(key, vpa)

    def _range_changed(self, change: Change[StoredLimitRange]) -> None:
        self._ranges.pop(change.namespace, None)


def stores_of(flags: Flags, shared: Shared) -> tuple[VpaStores, bool]:
    """Return the watches of VPAs, and whether the part that asks is the one to run them."""
    for name in ("recommender", "updater"):
        stores = getattr(shared.parts.get(name), "stores", None)
        if isinstance(stores, VpaStores):
            return stores, False
    made = VpaStores(
        shared.api,
        shared.discovery,
        namespaces=flags_.namespaces(flags),
        ignored=flags.listing("ignored-vpa-object-namespaces"),
        pods=shared.pods,
        feeds_pods=False,
        needs_nodes=True,
        needs_budgets="updater" in shared.names or not shared.is_launcher,
    )
    return made, True
