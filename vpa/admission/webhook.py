"""The webhook: one AdmissionReview in, one out; whatever happens, a pod is never kept waiting.

Pods get the patch of the VPA that decides; VPAs are checked field by field. What cannot be
answered in time, or at all, is let through unchanged. Anybody on the network may call: the
bytes of a review are bounded before it is read, what a pod holds before it is looked at, and
others get their turn in between.
"""

import asyncio
import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from msgspec import Raw, Struct

from podscale.core.json_decoder import JsonDecoder
from podscale.core.pace import LoopPace
from podscale.core.selectors.selector import Selector
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import VPAS
from podscale.kube.client.wire import ObjectMeta, decode
from podscale.kube.columns.pods import PodView, view_of
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.pod import Pod, PodSpec
from podscale.kube.objects.vpa import MOST_NAMES, ObjectError, StoredVpa, Vpa, read, vpa_of
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse
from vpa.admission import validation
from vpa.admission.matching import Candidate, TargetIndex, match_at_admission
from vpa.admission.patches import resources as sizing
from vpa.admission.patches.patch import BoostSettings, admission_patch, annotation, annotations_of
from vpa.explain.admission import REASONS, AdmittedPod, AnnotationWriter
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores

API_VERSION = "admission.k8s.io/v1"
_MOST_ERRORS = 100  # of one object, that are written out
_HEAD = 1024  # bytes at the begin of a review, in which its uid stands
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([-0-9A-Za-z]{1,128})"')
_CAUSES: Mapping[str, str] = {  # metav1.CauseType by field.ErrorType
    validation.REQUIRED: "FieldValueRequired",
    validation.UNSUPPORTED: "FieldValueNotSupported",
    validation.INVALID: "FieldValueInvalid",
    validation.FORBIDDEN: "FieldValueForbidden",
    validation.TOO_MANY: "FieldValueTooMany",
}

NULL = Raw(b"null")


class ReviewedResource(Struct, frozen=True):
    """What kind of object is asked about."""

    group: str = ""
    resource: str = ""


class ReviewRequest(Struct, frozen=True, rename="camel"):
    """One object on its way into the cluster; it is read when it is known to matter."""

    uid: str = ""
    resource: ReviewedResource = ReviewedResource()
    namespace: str = ""
    operation: str = ""
    object: Raw = NULL
    old_object: Raw = NULL
    name: str = ""


class Review(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: ReviewRequest | None = None


class ReviewAnswer(Struct, frozen=True):
    """What goes back: a patch, or a refusal by field."""

    patch: Sequence[Struct | Mapping[str, Any]] = ()  # operations of a JSON patch
    warnings: Sequence[str] = ()
    errors: Sequence[validation.VpaFieldError] = ()
    outcome: str = "skipped"  # applied, skipped or error: counted


UNCHANGED = ReviewAnswer()


def request_of_unread(body: bytes) -> ReviewRequest | None:
    """Return who asks, of a review that is too large to be read; None if nobody does so.

    The API server writes its uid first.
    """
    found = _UID.search(body, 0, _HEAD)
    return ReviewRequest(uid=found[1].decode()) if found is not None else None


def reviewed(asked: ReviewRequest, answer: ReviewAnswer) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": asked.uid, "allowed": not answer.errors}
    if answer.errors:
        shown = answer.errors[:_MOST_ERRORS]
        causes = [
            {"reason": _CAUSES[e.type], "message": f"{e.type}: {e.message}", "field": e.field}
            for e in shown
        ]
        text = "; ".join(f"{e.field}: {e.type}: {e.message}" for e in shown)
        if len(answer.errors) > len(shown):
            text += f"; and {len(answer.errors) - len(shown)} more"
        details = {"name": asked.name, "group": VPAS.group, "kind": VPAS.kind, "causes": causes}
        response["status"] = {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": text,
            "details": details,
        }  # fmt: skip
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


_log = structlog.get_logger()

MOST_BODY = 5 * 1024 * 1024  # upstream's limit
MOST_READ = 256 * 1024  # bytes of a review that is looked at; pods have a few thousand
_FEW = 8  # containers that are sized at once, whatever else is under way
_PODS, _VPAS = ("", "pods"), ("autoscaling.k8s.io", "verticalpodautoscalers")


class _SentPod(Struct, frozen=True):
    # Without the status: it is its creator's invention, and its times are the dearest to read.
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()


class _CountedPolicies(Struct, frozen=True, rename="camel"):
    container_policies: list[Raw] | None = None


class _CountedVpaSpec(Struct, frozen=True, rename="camel"):
    resource_policy: _CountedPolicies = _CountedPolicies()


class _CountedVpa(Struct, frozen=True):
    spec: _CountedVpaSpec = _CountedVpaSpec()


_COUNTED_VPA = JsonDecoder(_CountedVpa)


class Webhook:
    """Answers reviews from what the watches show."""

    def __init__(
        self,
        stores: VpaStores,
        note: Callable[[str, str, float], None],
        *,
        boost: BoostSettings,
        gates: validation.VpaGates,
        deadline_s: float = 2.0,
    ) -> None:
        """``note`` is called after each review, with resource, outcome and seconds."""
        self._stores = stores
        self._note = note
        self._boost = boost
        self._gates = gates
        self._deadline_s = deadline_s
        self._index = TargetIndex()
        self._large = asyncio.Lock()  # large pods wait for each other, and nobody for them
        stores.subscribe(self._vpa_changed)

    async def handle(self, request: ApiRequest) -> Answered:
        if len(request.body) > MOST_BODY:
            return status.request_entity_too_large(f"a review has at most {MOST_BODY} bytes")
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return status.unsupported_media_type("expected application/json")
        if len(request.body) > MOST_READ:
            unread = request_of_unread(request.body)
            if unread is None:
                return status.bad_request("not an AdmissionReview that begins with its uid")
            _log.warning("let through unchanged", reason="TooLarge", bytes=len(request.body))
            return ApiResponse(value=reviewed(unread, UNCHANGED))
        try:
            review = decode(request.body, Review)
        except msgspec.DecodeError as error:
            return status.bad_request(f"not an AdmissionReview: {error}")
        if review.request is None or review.api_version != API_VERSION:
            return status.bad_request(f"expected an AdmissionReview of {API_VERSION}")
        begun = time.monotonic()
        asked = review.request
        answer = await self._answer(asked)
        name = asked.resource.resource or "unknown"
        self._note(name, answer.outcome, time.monotonic() - begun)
        return ApiResponse(value=reviewed(asked, answer))

    async def match(self, pod: PodView) -> Candidate | None:
        """Return the VPA that decides about a pod."""
        controller = await self._stores.workloads.topmost(pod.namespace, pod.owner, asks=True)
        if controller is not None:
            await self._resolve(self._index.of(controller))
        return match_at_admission(pod.labels, controller, self._index)

    async def _answer(self, asked: ReviewRequest) -> ReviewAnswer:
        place = (asked.resource.group, asked.resource.resource)
        try:
            async with asyncio.timeout(self._deadline_s):
                if place == _PODS and asked.operation == "CREATE":
                    return await self._pod(asked)
                if place == _VPAS and asked.operation in ("CREATE", "UPDATE"):
                    return self._vpa(asked)
        except TimeoutError:
            _log.warning("let through unchanged", reason="Deadline", namespace=asked.namespace)
            return ReviewAnswer(outcome="error")
        except Exception:  # noqa: BLE001 - a defect of ours must not keep pods from starting
            _log.exception("let through unchanged", namespace=asked.namespace)
            return ReviewAnswer(outcome="error")
        return UNCHANGED

    async def _pod(self, asked: ReviewRequest) -> ReviewAnswer:
        if not self._index.is_used_in(asked.namespace):
            return UNCHANGED
        try:
            pod = decode(asked.object, _SentPod)
        except msgspec.DecodeError as error:
            _log.warning("pod not read", namespace=asked.namespace, error=str(error))
            return ReviewAnswer(outcome="error")
        size = max(len(pod.spec.containers), len(pod.spec.init_containers))
        if size > sizing.MOST_CONTAINERS or _most_resources(pod.spec) > MOST_NAMES:
            reason = "TooManyContainers" if size > sizing.MOST_CONTAINERS else "TooManyResources"
            _log.warning("let through unchanged", reason=reason, namespace=asked.namespace)
            return UNCHANGED
        if size <= _FEW:
            return await self._sized(asked, pod)
        async with self._large:
            return await self._sized(asked, pod)

    async def _sized(self, asked: ReviewRequest, sent: _SentPod) -> ReviewAnswer:
        # The object may not carry its namespace yet, the request does.
        meta = msgspec.structs.replace(sent.metadata, namespace=asked.namespace)
        pod = view_of(Pod(meta, sent.spec))
        try:
            found = await self.match(pod)
        except (KubeError, msgspec.DecodeError) as error:
            # Whose pod it is would have to be known: it may go unsized where it should not.
            _log.warning("let through unchanged", reason="OwnerUnknown",
                         namespace=asked.namespace, error=str(error))  # fmt: skip
            return ReviewAnswer(outcome="error")
        if found is None:
            return UNCHANGED
        vpa, ranges = found.vpa, self._stores.ranges(asked.namespace)
        resources = sizing.pod_resources(pod, vpa, ranges)
        await _turn(pod)
        entries = admission_patch(pod, vpa, ranges, self._boost, resources)
        if isinstance(entries, sizing.ResourcesUnavailable):
            _log.warning("pod not patched", reason=entries.reason, message=entries.message,
                         namespace=asked.namespace, vpa=vpa.metadata.name)  # fmt: skip
            return ReviewAnswer(outcome="error")
        await _turn(pod)
        reasons = await _reasons(pod, vpa, AdmittedPod(pod, vpa, ranges, self._boost, resources))
        told = [*entries, annotation(REASONS, reasons)] if reasons is not None else entries
        if sizing.refused_annotations(pod, annotations_of(told)) is not None:
            told = entries
        return ReviewAnswer(told, outcome="applied")

    def _vpa(self, asked: ReviewRequest) -> ReviewAnswer:
        if _policies(asked.object) > sizing.MOST_CONTAINERS:
            text = f"not checked: more than {sizing.MOST_CONTAINERS} container policies"
            return ReviewAnswer(warnings=[text], outcome="skipped")
        try:
            new = _read(asked.object)
        except ObjectError as error:
            unread = validation.VpaFieldError(
                error.field or "spec", validation.INVALID, error.reason
            )
            return ReviewAnswer(errors=[unread], outcome="error")
        if new is None:
            return UNCHANGED
        old: Vpa | None = None
        if asked.operation == "UPDATE":
            try:
                old = _read(asked.old_object)
            except ObjectError:
                old = new  # what was stored cannot be read, so nothing of it is new
        found = validation.validate(new.spec, validation.options_for(old, self._gates))
        errors = [*found.errors, *validation.validate_annotations(new.metadata.annotations)]
        if errors:
            return ReviewAnswer(errors=errors, warnings=found.warnings, outcome="error")
        return ReviewAnswer(validation.defaults(new.spec), found.warnings, outcome="applied")

    async def _resolve(self, candidates: Sequence[Candidate]) -> None:
        # The selector of a target may change without the VPA: looked up when it is needed.
        pace = LoopPace()
        selectors: dict[CrossVersionObjectReference | None, Selector | None] = {}
        for candidate in candidates:
            vpa = candidate.vpa
            target = vpa.spec.target_ref
            if target not in selectors:
                resolved = await self._stores.workloads.resolve(
                    vpa.metadata.namespace, target, asks=True
                )
                selectors[target] = resolved.selector
            if candidate.selector != selectors[target]:
                self._index.put(Candidate(vpa, selectors[target]))
            await pace.rest()

    def _vpa_changed(self, key: VpaKey, vpa: Vpa | None) -> None:
        if vpa is None:
            self._index.remove(*key)
        else:
            self._index.put(Candidate(vpa, None))


def _read(raw: Raw) -> Vpa | None:
    if raw == NULL:
        return None
    try:
        return vpa_of(decode(raw, StoredVpa))
    except msgspec.DecodeError as error:
        raise ObjectError.of(error, "") from error


def _most_resources(spec: PodSpec) -> int:
    """Return how many amounts the longest list has: reading them is what costs."""
    written = [each.resources for each in (*spec.containers, *spec.init_containers)]
    if spec.resources is not None:
        written.append(spec.resources)
    lists = [each for one in written for each in (one.requests, one.limits)]
    return max(len(each or ()) for each in (*lists, spec.overhead))


async def _turn(pod: PodView) -> None:
    # Whoever waits, and the deadline, come before the next step of a large pod.
    if len(pod.template.containers) > _FEW:
        await asyncio.sleep(0)


async def _reasons(pod: PodView, vpa: Vpa, view: AdmittedPod) -> str | None:
    writer = AnnotationWriter(vpa.metadata.name, view)
    for number, container in enumerate(pod.template.containers, 1):
        if not writer.add(container.name):
            return None
        if number % _FEW == 0:
            await asyncio.sleep(0)
    return writer.value()


def _policies(vpa: Raw) -> int:
    """Return how many container policies a VPA has; 0 where that cannot be read."""
    try:
        found = read(_COUNTED_VPA, vpa, "")
    except ObjectError:
        return 0
    return len(found.spec.resource_policy.container_policies or ())
