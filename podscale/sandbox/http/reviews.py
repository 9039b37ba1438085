"""TokenReview and the SubjectAccessReviews."""

from collections.abc import Mapping
from typing import Any

from podscale.sandbox.auth.identity import SandboxTokens, SandboxUser
from podscale.sandbox.errors import unknown_path
from podscale.sandbox.http.gate import OpenGate
from podscale.sandbox.http.request import RequestedObject
from podscale.sandbox.objects.storage import Object

_KINDS = {
    "tokenreviews": "TokenReview",
    "subjectaccessreviews": "SubjectAccessReview",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "localsubjectaccessreviews": "LocalSubjectAccessReview",
}
_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")


def is_review(group: str, plural: str) -> bool:
    """Return whether a POST there asks for a verdict instead of storing an object."""
    return group in _GROUPS and plural.endswith("reviews")


def answer(
    gate: OpenGate,
    tokens: SandboxTokens,
    asker: SandboxUser,
    target: RequestedObject,
    body: Object,
) -> Object:
    """Return the review with its status."""
    spec = body.get("spec") or {}
    kind = _KINDS.get(target.plural)
    if kind is None:
        raise unknown_path()
    body = {**body, "kind": kind, "apiVersion": f"{target.group}/v1"}
    if target.plural == "tokenreviews":
        return {**body, "status": _token(tokens, spec)}
    user = SandboxUser(spec.get("user", ""), tuple(spec.get("groups") or ()))
    if target.plural == "selfsubjectaccessreviews":
        user = asker
    return {**body, "status": _access(gate, user, spec)}


def _token(tokens: SandboxTokens, spec: Mapping[str, Any]) -> dict[str, Any]:
    user = tokens.user(spec.get("token", ""))
    if user is None:
        return {"user": {}, "error": "[invalid bearer token]"}
    shown: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    status: dict[str, Any] = {"authenticated": True, "user": shown}
    if spec.get("audiences"):
        status["audiences"] = spec["audiences"]
    return status


def _access(gate: OpenGate, user: SandboxUser, spec: Mapping[str, Any]) -> dict[str, Any]:
    if path := spec.get("nonResourceAttributes"):
        attributes = {"verb": path.get("verb", ""), "path": path.get("path", "")}
    else:
        attributes = dict(spec.get("resourceAttributes") or {})
        attributes.setdefault("verb", "")
        attributes.setdefault("resource", "")
    allowed, reason = gate.is_allowed(user, attributes)
    return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}
