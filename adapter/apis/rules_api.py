"""What a running adapter knows of its rules, for ``podscale doctor``: read-only, under RBAC.

``GET /apis/<its group>/<version>/podscale-rules`` tells the rules in force, the settings a
diagnosis depends on, and how the last relist of each rule went. Whoever may read metrics may
not therefore read PromQL, so it takes a right of its own beside: get on the path
``/podscale/rules`` (``nonResourceURLs`` of a ClusterRole).
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from adapter.backends.backend_router import BackendTold
from adapter.discovery.registry import RuleState
from adapter.doctor.evidence import problem_of_state
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiGroup, ApiRequest, ApiResponse
from podscale.serving.auth.authorization import Permission
from podscale.serving.request_info import RequestInfo

RESOURCE = "podscale-rules"
RIGHT = "/podscale/rules"


class RuleTold(Struct, frozen=True, rename="camel"):
    """One rule, as the last relist left it."""

    rule: str  # "rules[3]"
    listed_s: float | None  # unix time of the last good list
    metrics: int
    problem: str = ""  # of the last relist; after a failed one the last good list still serves
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
    running_in: str = ""  # the namespace of the pod
    namespace_label: str = ""  # what keeps namespaces' own rules apart in the default Prometheus
    backends: Sequence[BackendTold] = ()  # in their order, then Services that are none
    rules: Sequence[RuleTold] = ()
    kind: str = "PodscaleRules"


def told(state: RuleState) -> RuleTold:
    exposed = state.listing.exposed if state.listing is not None else ()
    crowded = state.listing.crowded if state.listing is not None else ()
    problem = problem_of_state(state)
    text = "" if problem is None else problem.text
    return RuleTold(state.rule.id, state.listed_s, len(exposed), text, crowded)


class WithRules:
    """An API group, and the rules behind it."""

    def __init__(self, group: ApiGroup, tell: Callable[[], RulesTold]) -> None:
        self._tell = tell
        self.name, self.versions, self.offers_table = group.name, group.versions, group.offers_table
        self.revision, self.resources = group.revision, group.resources  # its lists: metrics only
        self.schemas, self.paths = group.schemas, group.paths
        # Once here and not per request: nearly all are for the group.
        self._handle = group.handle

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer for the group, or tell the rules."""
        if request.info.resource != RESOURCE or request.info.parts != (RESOURCE,):
            return self._handle(request)
        if request.method != "GET":
            return status.method_not_allowed()
        return self._rules(request)

    async def _rules(self, request: ApiRequest) -> Answered:
        permission = request.review(RequestInfo(False, RIGHT, "get"))
        if not isinstance(permission, Permission):
            permission = await permission
        if not permission.is_allowed:
            return status.forbidden(
                f'forbidden: User "{request.user.name}" cannot get path "{RIGHT}": rules hold '
                f"PromQL, and take a ClusterRole with nonResourceURLs: [{RIGHT}], verbs: [get]"
            )
        return ApiResponse(value=self._tell())
