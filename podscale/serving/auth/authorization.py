"""Whether a user may do what a request asks: SubjectAccessReview with caches.

Follows the delegating authorizer of k8s.io/apiserver: members of ``system:masters`` and
the always-allowed paths pass, everything else is asked. Cluster first: a permission for
``*`` of a group without namespace and name means, under RBAC, a ClusterRole bound
cluster-wide, hence a permission for everything in that group with that verb; it is
asked once for all metrics instead of once for every metric.
"""

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from sys import getsizeof
from typing import Any, Literal

import msgspec
import structlog
from msgspec import UNSET, Struct, UnsetType

from podscale.core.boundedcache import BoundedCache
from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiError, KubeError
from podscale.serving import status
from podscale.serving.auth.user import MASTERS, User
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import RequestInfo
from podscale.serving.singleflight import SingleFlight
from podscale.serving.status import Status

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TIMEOUT_S = 10.0
_MOST_BYTES = 16 * 1024 * 1024
_LONGEST_CLUSTER_S = 60.0
_LONGEST_DENIAL_S = 10.0
_EVERYTHING = "*"


class ResourceAttributes(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is asked about a resource request."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class NonResourceAttributes(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is asked about any other request."""

    path: str = ""
    verb: str = ""


Attributes = ResourceAttributes | NonResourceAttributes


class Permission(Struct, frozen=True):
    """The answer of a review. ``reason`` is the authorizer's, often empty."""

    is_allowed: bool
    reason: str = ""
    # By an authorizer that says so. RBAC never does: it only finds no rule that allows.
    is_denied: bool = False


class ReviewFailed(Exception):
    """The review could not be made: neither allowed nor denied."""


class _Spec(Struct, frozen=True, omit_defaults=True, rename="camel"):
    resource_attributes: ResourceAttributes | UnsetType = UNSET
    non_resource_attributes: NonResourceAttributes | UnsetType = UNSET
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    uid: str = ""


class _Review(Struct, frozen=True, kw_only=True):
    kind: Literal["SubjectAccessReview"] = "SubjectAccessReview"
    api_version: str = msgspec.field(default="authorization.k8s.io/v1", name="apiVersion")
    spec: _Spec


class _ReviewStatus(Struct, frozen=True):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _Answer(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


_ALLOWED = Permission(True)
_Key = tuple[User, Attributes]


class Authorizer:
    """Permissions from reviews. A permission at hand is returned without a coroutine."""

    def __init__(
        self,
        api: Api | None,
        metrics: SelfMetrics,
        *,
        always_allowed: Sequence[str] = ("/healthz", "/readyz", "/livez"),
        allowed_ttl_s: float = 10.0,
        denied_ttl_s: float = 10.0,
        cluster_first: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without ``api`` nothing can be asked: what is not always allowed is denied."""
        self._api = api
        self._metrics = metrics
        self._exact = frozenset(path for path in always_allowed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allowed if path.endswith("*"))
        self._allowed_ttl_s = allowed_ttl_s
        # It allows much at once, so it is asked again even where the flag names hours.
        self._cluster_ttl_s = min(allowed_ttl_s, _LONGEST_CLUSTER_S)
        self._denied_ttl_s = min(denied_ttl_s, _LONGEST_DENIAL_S)
        self._cluster_first = cluster_first
        self._clock = clock
        self._known: BoundedCache[_Key, tuple[float, Permission]] = BoundedCache(
            _MOST_BYTES, age_s=2 * max(allowed_ttl_s, self._denied_ttl_s)
        )
        self._asking: SingleFlight[_Key, Permission] = SingleFlight()
        self._attempts = metrics.authorization.counts

    def is_always_allowed(self, info: RequestInfo) -> bool:
        """Return whether everybody may ask for this path, unauthenticated callers too."""
        return not info.is_resource and (
            info.path in self._exact or info.path.startswith(self._prefixes)
        )

    def authorize(
        self, user: User, info: RequestInfo
    ) -> Permission | Coroutine[Any, Any, Permission]:
        """Return the permission, or a coroutine of it that may raise ``ReviewFailed``."""
        if MASTERS in user.groups or self.is_always_allowed(info):
            return _ALLOWED
        known = self._remembered(user, info)
        if known is not None:
            return self._counted(known)
        return self._ask(user, info)

    def _remembered(self, user: User, info: RequestInfo) -> Permission | None:
        now = self._clock()
        if info.is_resource and self._cluster_first:
            found = self._known.get((user, _cluster_wide(info)))
            if found is not None and found[0] > now and found[1].is_allowed:
                return found[1]
        found = self._known.get((user, attributes(info)))
        return found[1] if found is not None and found[0] > now else None

    async def _ask(self, user: User, info: RequestInfo) -> Permission:
        try:
            if info.is_resource and self._cluster_first:
                wide = await self._permission(user, _cluster_wide(info), self._cluster_ttl_s)
                if wide.is_allowed:
                    return self._counted(wide)
            return self._counted(
                await self._permission(user, attributes(info), self._allowed_ttl_s)
            )
        except ReviewFailed:
            self._attempts["error"] += 1
            raise

    def _counted(self, permission: Permission) -> Permission:
        refused = "denied" if permission.is_denied else "no-opinion"
        self._attempts["allowed" if permission.is_allowed else refused] += 1
        return permission

    async def _permission(self, user: User, asked: Attributes, ttl_s: float) -> Permission:
        key = (user, asked)
        found = self._known.get(key)
        if found is not None and found[0] > self._clock():
            return found[1]
        return await self._asking.run(key, lambda: self._review(key, ttl_s))

    async def _review(self, key: _Key, allowed_ttl_s: float) -> Permission:
        if self._api is None:
            return Permission(False, "no API server to ask")
        started = self._clock()
        code = "<error>"
        try:
            response = await self._api.request(
                "POST", _PATH, body=msgspec.json.encode(_review(*key)), timeout_s=_TIMEOUT_S
            )
            code = str(response.status)
            answer = decode_json(response.body, _Answer).status
        except (KubeError, msgspec.DecodeError) as error:
            if isinstance(error, ApiError):
                code = str(error.status)
            structlog.get_logger().warning("SubjectAccessReviewFailed", error=str(error))
            raise ReviewFailed(str(error)) from error
        finally:
            self._metrics.delegated_authz.observe(code, self._clock() - started)
        if answer.allowed and answer.denied:
            raise ReviewFailed(
                "webhook subject access review returned both allow and deny response"
            )
        permission = Permission(answer.allowed, answer.reason, answer.denied)
        self._remember(key, permission, allowed_ttl_s)
        return permission

    def _remember(self, key: _Key, permission: Permission, allowed_ttl_s: float) -> None:
        ttl_s = allowed_ttl_s if permission.is_allowed else self._denied_ttl_s
        if ttl_s <= 0:
            return
        user, asked = key
        texts = (permission.reason, *(getattr(asked, name) for name in asked.__struct_fields__))
        size = user.size + sum(map(getsizeof, texts))
        self._known.put(key, (self._clock() + ttl_s, permission), size)


def attributes(info: RequestInfo) -> Attributes:
    """Return what RBAC is asked about a request."""
    if not info.is_resource:
        return NonResourceAttributes(info.path, info.verb)
    return ResourceAttributes(
        info.namespace,
        info.verb,
        info.group,
        info.version,
        info.resource,
        info.subresource,
        info.name,
    )


def _cluster_wide(info: RequestInfo) -> ResourceAttributes:
    # RBAC grants the resource "*" only where a rule names "*" without resourceNames, and
    # no namespace only through a ClusterRoleBinding. It does not look at versions.
    return ResourceAttributes("", info.verb, info.group, _EVERYTHING, _EVERYTHING)


def _review(user: User, asked: Attributes) -> _Review:
    on_resource = asked if isinstance(asked, ResourceAttributes) else UNSET
    on_path = UNSET if isinstance(asked, ResourceAttributes) else asked
    extra = dict(user.extra)
    return _Review(spec=_Spec(on_resource, on_path, user.name, user.groups, extra, user.uid))


def denial(user: User, info: RequestInfo, reason: str) -> Status:
    """Return the 403, in the words of ``responsewriters.Forbidden``."""
    suffix = f": {reason}" if reason else ""
    if not info.is_resource:
        text = f'forbidden: User "{user.name}" cannot {info.verb} path "{info.path}"'
        return status.forbidden(text + suffix)
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    what = f"{info.resource}.{info.group}" if info.group else info.resource
    named = f' "{info.name}"' if info.name else ""
    text = (
        f'{what}{named} is forbidden: User "{user.name}" cannot {info.verb} resource '
        f'"{resource}" in API group "{info.group}" {where}'
    )
    return status.forbidden(text + suffix, name=info.name, group=info.group, resource=info.resource)
