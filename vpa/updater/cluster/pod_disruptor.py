"""What the updater does to pods: evictions, resizes, and the events that tell of them."""

from collections.abc import Sequence

import msgspec
import structlog

from podscale.kube.client import errors
from podscale.kube.client.api import JSON_PATCH, MERGE_PATCH, Api
from podscale.kube.client.eviction import DisruptionOutcome, evict, may_have_happened
from podscale.kube.client.resource import PODS, VPAS
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodView, view_of
from podscale.kube.events import Recorder
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.vpa import Vpa, VpaRecommendation
from vpa.admission.patches.patch import PatchEntry, ResizePatch, resize_patch
from vpa.admission.patches.resources import ResourcesUnavailable
from vpa.capping import LimitRanges
from vpa.model.estimation.status import recommendation_wire
from vpa.stores import VpaStores

_log = structlog.get_logger()

_TIMEOUT_S = 10.0
# Refused sizes, kept on the pod so that they survive a restart of ours.
INFEASIBLE = "vpa.podscale.io/infeasible"

# What the API server says about the resize itself, and will say again.
_DEFINITE = (errors.Unprocessable, errors.BadRequest, errors.MethodNotAllowed)


class PodDisruptor:
    """Acts on pods through a connection that the Lease fences."""

    def __init__(self, api: Api, stores: VpaStores, recorder: Recorder) -> None:
        self._api = api
        self._stores = stores
        self._recorder = recorder

    async def evict(self, pod: PodView, vpa: Vpa) -> DisruptionOutcome:
        """Evict through the API server, which asks the PodDisruptionBudgets."""
        acted = await evict(self._api, pod.namespace, pod.name, pod.uid)
        if acted.outcome != "done":
            return acted
        text = "Pod was evicted by VPA Updater to apply resource recommendation."
        self._recorder.event(_about_pod(pod), "Normal", "EvictedByVPA", text)
        text = f"VPA Updater evicted Pod {pod.name} to apply resource recommendation."
        self._recorder.event(_about_vpa(vpa), "Normal", "EvictedPod", text)
        return acted

    async def resize(
        self,
        pod: PodView,
        vpa: Vpa,
        ranges: LimitRanges,
        now: float,
        *,
        only_unboost: bool = False,
        only_unmark: bool = False,
    ) -> DisruptionOutcome:
        """Resize in place, from the pod as it is now, and remove what marks boosts that are over.

        ``only_unboost``: not without such a mark; ``only_unmark``: nothing but marks.
        """
        try:
            present = await self._read(pod)
            if present is None:
                return DisruptionOutcome("gone")
            patch = resize_patch(present, vpa, ranges, now)
            if isinstance(patch, ResourcesUnavailable):
                return DisruptionOutcome("failed", patch.message)
            ended = [entry for entry in patch.annotations if entry.op == "remove"]
            if only_unboost and not ended:
                return DisruptionOutcome("nothing")
            if not patch.resize or only_unmark:
                # The boost changed nothing, or all but its annotation was taken back already.
                if ended and not patch.resize:
                    await self._mark(present, ended)
                return DisruptionOutcome("nothing")
            acted = await self._resize(present, patch)
        except errors.ObjectNotFound:
            return DisruptionOutcome("gone")
        except (errors.KubeError, msgspec.DecodeError) as error:
            return DisruptionOutcome("failed", str(error))
        if acted.outcome == "done":
            text = "Pod was resized in place by VPA Updater."
            self._recorder.event(_about_pod(pod), "Normal", "InPlaceResizedByVPA", text)
        return acted

    async def remember_infeasible(self, pod: PodView, recommendation: VpaRecommendation) -> None:
        """Write on the pod which size its node could not give; failing costs another try."""
        text = msgspec.json.encode(recommendation_wire(recommendation)).decode()
        body = {"metadata": {"uid": pod.uid, "annotations": {INFEASIBLE: text}}}
        await self._patch(pod, encode(body), MERGE_PATCH)

    def tell_skipped(self, pod: PodView) -> None:
        """Say that a pod is not tried again."""
        text = "The node cannot give the recommended resources; waiting for a lower target."
        self._recorder.event(_about_pod(pod), "Normal", "InPlaceResizeSkipped", text)

    async def _read(self, pod: PodView) -> PodView | None:
        path = PODS.path(pod.namespace, pod.name)
        answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
        present = view_of(decode(answer.body, Pod))
        return present if present.uid == pod.uid else None

    async def _resize(self, pod: PodView, patch: ResizePatch) -> DisruptionOutcome:
        try:
            answer = await self._api.request(
                "PATCH",
                PODS.path(pod.namespace, pod.name, "resize"),
                body=encode([_same(pod), *patch.resize]),
                content_type=JSON_PATCH,
                timeout_s=_TIMEOUT_S,
            )
        except errors.Forbidden as refused:
            full = any(cause.reason == "NodeCapacity" for cause in refused.causes)
            return DisruptionOutcome("node-capacity" if full else "refused", refused.message)
        except errors.ObjectNotFound:
            return DisruptionOutcome("gone")
        except _DEFINITE as refused:
            return DisruptionOutcome("refused", refused.message)
        except errors.TooManyRequests as refused:
            return DisruptionOutcome("busy", refused.message)
        except errors.KubeError as error:
            return DisruptionOutcome(
                "unknown" if may_have_happened(error) else "failed", str(error)
            )
        self._accept(answer.body)
        await self._mark(pod, patch.annotations)
        return DisruptionOutcome("done")

    async def _mark(self, pod: PodView, entries: Sequence[PatchEntry]) -> None:
        body = encode([_same(pod), *entries])
        await self._patch(pod, body, JSON_PATCH)

    async def _patch(self, pod: PodView, body: bytes, kind: str) -> None:
        try:
            answer = await self._api.request(
                "PATCH",
                PODS.path(pod.namespace, pod.name),
                body=body,
                content_type=kind,
                timeout_s=_TIMEOUT_S,
            )
        except errors.KubeError as error:
            _log.warning("pod not annotated", namespace=pod.namespace, name=pod.name,
                         error=str(error))  # fmt: skip
        else:
            self._accept(answer.body)

    def _accept(self, body: bytes) -> None:
        # The next decision about the pod sees what we wrote, whenever the watch brings it.
        try:
            self._stores.pods.accept(decode(body, Pod))
        except msgspec.DecodeError as error:
            _log.warning("answer not read", error=str(error))


def _same(pod: PodView) -> dict[str, object]:
    return {"op": "test", "path": "/metadata/uid", "value": pod.uid}


def _about_pod(pod: PodView) -> ObjectReference:
    return ObjectReference("Pod", pod.namespace, pod.name, pod.uid, "v1")


def _about_vpa(vpa: Vpa) -> ObjectReference:
    meta = vpa.metadata
    return ObjectReference(VPAS.kind, meta.namespace, meta.name, meta.uid, VPAS.api_version)
