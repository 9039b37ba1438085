"""AdmissionReviews on the wire: what is asked, and the answer by which a pod is let through."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from podscale.kube.client.resource import VPAS
from vpa.admission.validation import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_MANY,
    UNSUPPORTED,
    VpaFieldError,
)

API_VERSION = "admission.k8s.io/v1"
_MOST_ERRORS = 100  # of one object, that are written out
_HEAD = 1024  # bytes at the begin of a review, in which its uid stands
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([-0-9A-Za-z]{1,128})"')
_CAUSES: Mapping[str, str] = {  # metav1.CauseType by field.ErrorType
    REQUIRED: "FieldValueRequired",
    UNSUPPORTED: "FieldValueNotSupported",
    INVALID: "FieldValueInvalid",
    FORBIDDEN: "FieldValueForbidden",
    TOO_MANY: "FieldValueTooMany",
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

    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    errors: Sequence[VpaFieldError] = ()
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
