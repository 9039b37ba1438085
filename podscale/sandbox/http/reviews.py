"""TokenReview and the SubjectAccessReviews."""

from collections.abc import Mapping
from typing import Any

from podscale.sandbox.auth.identity import SandboxTokens
from podscale.sandbox.http.gate import OpenGate
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object
from podscale.serving.auth.user import User


def answer(
    gate: OpenGate,
    tokens: SandboxTokens,
    asker: User,
    resource: SandboxResource,
    body: Object,
) -> Object:
    spec = body.get("spec") or {}
    body = {**body, "kind": resource.kind, "apiVersion": resource.api_version()}
    if resource.kind == "TokenReview":
        return {**body, "status": _token(tokens, spec)}
    user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
    if resource.kind == "SelfSubjectAccessReview":
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


def _access(gate: OpenGate, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
    if path := spec.get("nonResourceAttributes"):
        attributes = {"verb": path.get("verb", ""), "path": path.get("path", "")}
    else:
        attributes = dict(spec.get("resourceAttributes") or {})
        attributes.setdefault("verb", "")
        attributes.setdefault("resource", "")
    allowed, reason = gate.is_allowed(user, attributes)
    return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}
