"""The anchor that an autoscaler's target hangs on: that of the one VPA with the same target.

VPAs are watched from when the first autoscaler is to be coordinated.
"""

import asyncio

import structlog

from hpa.cluster.objects import TargetKey
from hpa.decide.api.spec import HPA
from hpa.decide.metrics.measuring import is_utilization_of_cpu
from hpa.decide.observation import HeldTarget
from hpa.decide.settings import Settings
from podscale.coordinate.anchor import ANNOTATION, anchor_clause, parse
from podscale.coordinate.pairing import pair
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.client.resource import VPAS
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store, StoreIndex
from podscale.kube.objects.vpa import ObjectError, StoredVpa, Vpa, vpa_of

_log = structlog.get_logger()

_PATIENCE_S = 60.0


class VpaAnchors:
    """The VPAs and their anchors, by target."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.store: Store[StoredVpa] = Store(scopes)
        self._is_wanted = asyncio.Event()
        self.by_target = StoreIndex(self.store, _target_vpa)

    async def run(self, api: Api, rhythm: WatchTiming) -> None:
        """Watch for ever, from when somebody is to be coordinated."""
        await self._is_wanted.wait()
        await Reflector(api, WatchSource(VPAS, StoredVpa, rhythm=rhythm), self.store).run()

    async def wait_listed(self) -> None:
        """Wait for the first list: before it, pods that are smaller than their anchor would look
        overloaded. Not for ever: whoever has to grow grows."""
        self._is_wanted.set()
        if not await self.store.wait_listed(_PATIENCE_S):
            _log.error("not listed, going on without", resource="verticalpodautoscalers")

    def held(self, hpa: HPA, uid: str) -> HeldTarget:
        """Return what holds the target of ``hpa``, which is to be coordinated, and whose workload
        has that UID."""
        self._is_wanted.set()
        containers = (each.container for each in hpa.metrics if is_utilization_of_cpu(each))
        container = next(containers, None)
        if container is not None and not self._are_known():
            text = "the VPAs are not known at present"
            return HeldTarget("VpasUnknown", text, container, may_shrink=False)
        vpas = self.by_target.get((hpa.namespace, *hpa.target.key))
        found = pair(container, list(vpas))
        if found.vpa is None or container is None:
            return HeldTarget(found.reason, found.text)
        notes = found.vpa.metadata.annotations or {}
        anchor = parse(notes.get(ANNOTATION), uid, container)
        if anchor is None:
            text = f"{found.text}, and has no anchor of this target yet"
            return HeldTarget("NoAnchor", text, container, may_shrink=False)
        return HeldTarget("AnchorHeld", f"{found.text}; {anchor_clause(anchor)}", container, anchor)

    def _are_known(self) -> bool:
        # A cluster without the CRD has no VPAs, and nobody will tell of any.
        is_absent = isinstance(self.store.freshness().error, ObjectNotFound)
        return self.store.is_current() or (is_absent and not self.store.is_synced)


def is_coordinated(hpa: HPA, settings: Settings) -> bool:
    """Return whether ``hpa`` is to be coordinated with a VPA: as its annotation says, or the flag;
    in shadow mode whoever acts knows no anchor."""
    asked = hpa.options.coordinates
    return settings.mode != "shadow" and (settings.coordinates if asked is None else asked)


def _target_vpa(stored: StoredVpa) -> tuple[TargetKey, Vpa] | None:
    try:
        vpa = vpa_of(stored)
    except ObjectError:
        return None
    target = vpa.spec.target_ref
    return None if target is None else ((vpa.metadata.namespace, *target.key), vpa)
