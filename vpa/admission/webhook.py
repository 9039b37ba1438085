"""The webhook: one AdmissionReview in, one out; whatever happens, a pod is never kept waiting.

Pods get the patch of the VPA that decides; VPAs are checked field by field. What cannot be
answered in time, or at all, is let through unchanged.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import structlog
from msgspec import Raw, Struct

from podscale.kube.errors import KubeError
from podscale.kube.wire import ObjectMeta, PartialObjectMetadata, decode
from podscale.serving import status
from podscale.serving.api import Answered, ApiRequest, ApiResponse
from vpa.admission.matching import Candidate, Match, TargetIndex, match_at_admission
from vpa.admission.patch import BoostSettings, admission_patch, annotation
from vpa.admission.resources import Unavailable
from vpa.admission.validation import (
    FieldError,
    Gates,
    defaults,
    options_for,
    validate,
    validate_annotations,
)
from vpa.explain import admitted
from vpa.model.membership import VpaKey
from vpa.model.objects import ObjectError, Pod, Vpa
from vpa.stored import StoredVpa, decode_pod, vpa_of
from vpa.stores import Stores

_log = structlog.get_logger()

MOST_BODY = 5 * 1024 * 1024  # upstream's limit
_API_VERSION = "admission.k8s.io/v1"
_PODS, _VPAS = ("", "pods"), ("autoscaling.k8s.io", "verticalpodautoscalers")


_NULL = Raw(b"null")


class _GroupResource(Struct, frozen=True):
    group: str = ""
    resource: str = ""


class _Request(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource: _GroupResource = _GroupResource()
    namespace: str = ""
    operation: str = ""
    object: Raw = _NULL
    old_object: Raw = _NULL


class _Review(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class Answer(Struct, frozen=True):
    """What goes back: a patch, or a refusal by field."""

    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    errors: Sequence[FieldError] = ()
    outcome: str = "skipped"  # applied, skipped or error: counted


UNCHANGED = Answer()


class Observer(Protocol):
    """Who counts."""

    def admitted(self, resource: str, outcome: str, seconds: float) -> None:
        """Note one review."""
        ...


class Webhook:
    """Answers reviews from what the watches show."""

    def __init__(
        self,
        stores: Stores,
        observer: Observer,
        *,
        boost: BoostSettings,
        gates: Gates,
        deadline_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._observer = observer
        self._boost = boost
        self._gates = gates
        self._deadline_s = deadline_s
        self._clock = clock
        self._index = TargetIndex()
        stores.subscribe(self._vpa_changed)

    async def handle(self, request: ApiRequest) -> Answered:
        """Answer one HTTP request."""
        if len(request.body) > MOST_BODY:
            return status.request_entity_too_large(f"a review has at most {MOST_BODY} bytes")
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return status.unsupported_media_type("expected application/json")
        try:
            review = msgspec.json.decode(request.body, type=_Review)
        except msgspec.DecodeError as error:
            return status.bad_request(f"not an AdmissionReview: {error}")
        if review.request is None or review.api_version != _API_VERSION:
            return status.bad_request(f"expected an AdmissionReview of {_API_VERSION}")
        begun = self._clock()
        asked = review.request
        answer = await self._answer(asked)
        name = asked.resource.resource or "unknown"
        self._observer.admitted(name, answer.outcome, self._clock() - begun)
        return ApiResponse(value=_reviewed(asked.uid, answer))

    async def match(self, pod: Pod, meta: ObjectMeta) -> Match:
        """Return the VPA that decides about a pod."""
        controller = await self._stores.workloads.topmost(
            meta.namespace, meta.controller, asks=True
        )
        if controller is not None:
            await self._resolve(self._index.of(controller))
        return match_at_admission(pod, controller, self._index)

    async def _answer(self, asked: _Request) -> Answer:
        place = (asked.resource.group, asked.resource.resource)
        try:
            async with asyncio.timeout(self._deadline_s):
                if place == _PODS and asked.operation == "CREATE":
                    return await self._pod(asked)
                if place == _VPAS and asked.operation in ("CREATE", "UPDATE"):
                    return self._vpa(asked)
        except TimeoutError:
            _log.warning("let through unchanged", reason="Deadline", namespace=asked.namespace)
            return Answer(outcome="error")
        except Exception:  # noqa: BLE001 - a defect of ours must not keep pods from starting
            _log.exception("let through unchanged", namespace=asked.namespace)
            return Answer(outcome="error")
        return UNCHANGED

    async def _pod(self, asked: _Request) -> Answer:
        raw = asked.object
        try:
            pod = decode_pod(raw)
            meta = decode(raw, PartialObjectMetadata).metadata
        except (ObjectError, msgspec.DecodeError) as error:
            _log.warning("pod not read", namespace=asked.namespace, error=str(error))
            return Answer(outcome="error")
        # The object may not carry its namespace yet; the request does.
        meta = msgspec.structs.replace(meta, namespace=asked.namespace)
        try:
            found = await self.match(pod, meta)
        except (KubeError, msgspec.DecodeError) as error:
            # Whose pod it is would have to be known: it may go unsized where it should not.
            _log.warning("let through unchanged", reason="OwnerUnknown",
                         namespace=asked.namespace, error=str(error))  # fmt: skip
            return Answer(outcome="error")
        if found.chosen is None:
            return UNCHANGED
        ranges = self._stores.ranges(asked.namespace)
        entries = admission_patch(pod, found.chosen.vpa, ranges, self._boost)
        if isinstance(entries, Unavailable):
            _log.warning("pod not patched", reason=entries.reason, message=entries.message)
            return Answer(outcome="error")
        wire = [entry.wire() for entry in entries]
        reasons = admitted.annotation_value(pod, found.chosen.vpa, ranges, self._boost)
        if reasons is not None:
            wire.append(annotation(admitted.REASONS, reasons).wire())
        return Answer(wire, outcome="applied")

    def _vpa(self, asked: _Request) -> Answer:
        try:
            new = _read(asked.object)
        except ObjectError as error:
            return Answer(errors=[FieldError("spec", "Invalid value", str(error))], outcome="error")
        if new is None:
            return UNCHANGED
        old: Vpa | None = None
        if asked.operation == "UPDATE":
            try:
                old = _read(asked.old_object)
            except ObjectError:
                old = new  # what was stored cannot be read, so nothing of it is new
        found = validate(new.spec, options_for(old, self._gates))
        errors = [*found.errors, *validate_annotations(new.metadata.annotations)]
        if errors:
            return Answer(errors=errors, warnings=found.warnings, outcome="error")
        return Answer(defaults(new.spec), found.warnings, outcome="applied")

    async def _resolve(self, candidates: Sequence[Candidate]) -> None:
        # The selector of a target may change without the VPA: looked up when it is needed.
        for candidate in candidates:
            vpa = candidate.vpa
            resolved = await self._stores.workloads.resolve(
                vpa.metadata.namespace, vpa.spec.target_ref, asks=True
            )
            if candidate.selector != resolved.selector:
                self._index.put(Candidate(vpa, resolved.selector))

    def _vpa_changed(self, key: VpaKey, vpa: Vpa | None) -> None:
        if vpa is None:
            self._index.remove(*key)
        else:
            self._index.put(Candidate(vpa, None))


def _read(raw: Raw) -> Vpa | None:
    if raw == _NULL:
        return None
    try:
        return vpa_of(decode(raw, StoredVpa))
    except msgspec.DecodeError as error:
        raise ObjectError(str(error)) from error


def _reviewed(uid: str, answer: Answer) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": not answer.errors}
    if answer.errors:
        causes = [
            {"field": e.field, "reason": e.type, "message": f"{e.type}: {e.message}"}
            for e in answer.errors
        ]
        text = "; ".join(f"{e.field}: {e.type}: {e.message}" for e in answer.errors)
        response["status"] = {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": text,
            "details": {"causes": causes},
        }  # fmt: skip
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
