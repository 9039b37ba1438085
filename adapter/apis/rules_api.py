"""What a running adapter knows of its rules, for ``podscale doctor``: read-only, under RBAC.

``GET /apis/<its group>/<version>/podscale-rules`` tells the rules in force, the settings a
diagnosis depends on, and how the last relist of each rule went. Whoever may read metrics may
not therefore read PromQL, so it takes a right of its own beside: get on the path
``/podscale/rules`` (``nonResourceURLs`` of a ClusterRole).
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from adapter.discovery.registry import RuleState
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiGroup, ApiRequest, ApiResource, ApiResponse
from podscale.serving.auth.user import MASTERS, User

RESOURCE = "podscale-rules"
RIGHT = "/podscale/rules"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TIMEOUT_S = 10.0


class RuleTold(Struct, frozen=True, rename="camel"):
    """One rule, as the last relist left it."""

    rule: str  # "rules[3]"
    listed_s: float | None  # unix time of the last good list
    metrics: int
    problem: str = ""  # of the last relist; the last good list still serves
    crowded: Sequence[str] = ()  # series names of which not all label names were looked at


class RulesTold(Struct, frozen=True, rename="camel"):
    """The whole answer."""

    config: str  # the text of the rules file in force
    file: str
    prometheus_url: str  # without credentials
    relist_interval_s: float  # how far back discovery looks
    max_sample_age_s: float
    problem: str = ""  # why the file as it is now was refused
    prometheus_problem: str = ""  # since when and why Prometheus does not answer
    service: str = ""  # --service
    rules: Sequence[RuleTold] = ()
    kind: str = "PodscaleRules"


class _Allowed(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Allowed = _Allowed()


def told(state: RuleState) -> RuleTold:
    """Return what is told of one rule."""
    exposed = state.listing.exposed if state.listing is not None else ()
    crowded = state.listing.crowded if state.listing is not None else ()
    failure = f"{state.failure.stage}: {state.failure.message}" if state.failure else ""
    return RuleTold(state.rule.id, state.listed_s, len(exposed), failure, crowded)


class WithRules:
    """An API group, and the rules behind it."""

    def __init__(self, group: ApiGroup, api: Api, tell: Callable[[], RulesTold]) -> None:
        self._group, self._api, self._tell = group, api, tell
        # Once here and not per request: nearly all are for the group.
        self._handle = group.handle

    @property
    def name(self) -> str:
        """The group's."""
        return self._group.name

    @property
    def versions(self) -> Sequence[str]:
        """The group's."""
        return self._group.versions

    @property
    def offers_table(self) -> bool:
        """The group's."""
        return self._group.offers_table

    def revision(self) -> Hashable:
        """Return the group's."""
        return self._group.revision()

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return the group's: its lists hold metrics only."""
        return self._group.resources(version)

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the group's."""
        return self._group.schemas(version)

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the group's."""
        return self._group.paths(version)

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer for the group, or tell the rules."""
        if request.info.resource != RESOURCE or request.info.parts != (RESOURCE,):
            return self._handle(request)
        if request.method != "GET":
            return status.method_not_allowed()
        return self._rules(request.user)

    async def _rules(self, user: User) -> Answered:
        if MASTERS not in user.groups and not await self._may_read(user):
            return status.forbidden(
                f'forbidden: User "{user.name}" cannot get path "{RIGHT}": rules hold PromQL, and '
                f"take a ClusterRole with nonResourceURLs: [{RIGHT}], verbs: [get]"
            )
        return ApiResponse(value=self._tell())

    async def _may_read(self, user: User) -> bool:
        body = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {
                "user": user.name,
                "groups": user.groups,
                "uid": user.uid,
                "extra": dict(user.extra),
                "nonResourceAttributes": {"path": RIGHT, "verb": "get"},
            },
        }
        try:
            answer = await self._api.request(
                "POST", _REVIEWS, body=msgspec.json.encode(body), timeout_s=_TIMEOUT_S
            )
            return msgspec.json.decode(answer.body, type=_Review).status.allowed
        except (KubeError, msgspec.MsgspecError):
            return False  # who cannot be asked about may not
