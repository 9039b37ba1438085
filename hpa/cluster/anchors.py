"""The anchors of targets that a VPA sizes too, from a watch of VPAs that begins when it is needed.

Only autoscalers that ask for it are coordinated; until one does, no VPA is listed.
"""

import asyncio

from msgspec import Raw, Struct

from hpa.decide.api.spec import HPA
from hpa.decide.metrics.measuring import is_utilization_of_cpu
from hpa.decide.observation import HeldTarget
from podscale.coordinate.anchor import ANNOTATION, parse
from podscale.coordinate.pairing import Pairing, ScaledObject, VpaSide, pair, vpa_side
from podscale.core.value_index import ValueIndex
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.client.resource import VPAS
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.listeners import Change
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store


class WatchedVpa(Struct, frozen=True):
    """A VPA, as far as an HPA needs it."""

    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")


class VpaAnchors:
    """The VPAs by target."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.store: Store[WatchedVpa] = Store(scopes)
        self.changed = 0  # how often ``held`` may have come to answer differently
        self._wanted = asyncio.Event()
        self._sides: dict[tuple[str, str], tuple[VpaSide, str | None]] = {}  # with the annotation
        self._by_target: ValueIndex[tuple[str, str, str, str], str] = ValueIndex()
        self.store.subscribe(self._note)

    async def run(self, api: Api, rhythm: WatchTiming) -> None:
        """Watch from when it is first asked, for ever."""
        await self._wanted.wait()
        await Reflector(api, WatchSource(VPAS, WatchedVpa, rhythm=rhythm), self.store).run()

    def held(self, hpa: HPA, uid: str, *, is_asked: bool) -> HeldTarget | None:
        """Return what holds the target of ``hpa``, whose workload has that UID; None where its
        owner does not ask for it."""
        if not is_asked:
            return None
        self._wanted.set()
        spec = next((each for each in hpa.metrics if is_utilization_of_cpu(each)), None)
        container = None if spec is None else spec.container
        if container is not None and not self._is_known():
            text = "the VPAs are not known at present"
            return HeldTarget("VpasUnknown", text, container, may_shrink=False)
        found = self.paired(hpa, container)
        if found.vpa is None or container is None:
            return HeldTarget(found.reason, found.text)
        anchor = parse(self._sides[hpa.namespace, found.vpa.name][1], uid, container)
        if anchor is None:
            text = f"{found.text}, and has no anchor of this target yet"
            return HeldTarget("NoAnchor", text, container, may_shrink=False)
        text = (
            f"{found.text}; 100 % are the {anchor.milli}m of its anchor, to which pods of "
            f"{anchor.size}m belong"
        )
        return HeldTarget("AnchorHeld", text, container, anchor)

    def paired(self, hpa: HPA, container: str | None) -> Pairing:
        """Return the VPA of ``hpa``, as far as it was listed."""
        target = ScaledObject(hpa.target.kind, hpa.target.name, hpa.target.api_version)
        names = self._by_target.get((hpa.namespace, *target.key))
        return pair(container, [self._sides[hpa.namespace, name][0] for name in names])

    def _is_known(self) -> bool:
        # A cluster without the CRD has no VPAs, and nobody will tell of any.
        is_absent = isinstance(self.store.freshness().error, ObjectNotFound)
        return self.store.is_current() or (is_absent and not self.store.is_synced)

    def _note(self, change: Change[WatchedVpa]) -> None:
        key = (change.namespace, change.name)
        found: tuple[VpaSide, str | None] | None = None
        side = None if change.new is None else vpa_side(change.name, change.new.spec)
        if change.new is not None and side is not None:
            found = side, (change.new.metadata.annotations or {}).get(ANNOTATION)
        before = self._sides.pop(key, None)
        if found is not None:
            self._sides[key] = found
        if found == before:
            return  # its status, mostly: every autoscaler would be looked at anew
        self.changed += 1
        if before is not None:
            self._by_target.discard((change.namespace, *before[0].target.key), change.name)
        if found is not None:
            self._by_target.add((change.namespace, *found[0].target.key), change.name)
