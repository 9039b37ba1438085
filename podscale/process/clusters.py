"""The clusters that a process asks: for objects, for who a user is, for what a user may.

They are one in nearly every installation, and then one connection. What a part may do in them is
checked at the start, with one warning per missing right: a right may be granted later, and much
works without some.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.access_review import reviewed
from podscale.kube.client.api import Api
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.errors import KubeError, NotConfigured, ObjectNotFound
from podscale.kube.discovery import ApiDiscovery
from podscale.serving.monitoring.health import Health, HealthVerdict

log = structlog.get_logger(__name__)


class Right(Struct, frozen=True):
    """One thing to be allowed, and what does not work without it."""

    verb: str
    group: str
    resource: str
    without: str


async def warn_of_missing(api: Api, needed: Sequence[Right]) -> list[Right]:
    """Log each missing right and return them; a server that cannot be asked is logged once."""
    missing: list[Right] = []
    for right in needed:
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        try:
            verdict = await reviewed(
                api, {"resourceAttributes": attributes}, "SelfSubjectAccessReview"
            )
        except (KubeError, msgspec.DecodeError) as error:
            log.warning("rights not checked", error=str(error))
            return missing
        if not verdict.allowed:
            missing.append(right)
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            log.warning("right missing", right=f"{right.verb} {resource}", without=right.without)
    return missing


async def missing_policy(read: Callable[[str], Awaitable[object]], namespace: str) -> str:
    """Return, for everybody to read, what is missing of the policy that holds our accounts in
    ``namespace`` to what they change by design; "" for nothing. ``read`` raises ``KubeError``."""
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}/podscale-accounts-{namespace}"
        try:
            await read(path)
        except ObjectNotFound:
            text = "roles alone say what they may change: apply config/rbac/accounts"
            return f"the {plural} of podscale's accounts are missing, so that {text}"
        except KubeError:
            return f"whether the {plural} of podscale's accounts are there cannot be read"
    return ""


async def follow_policy(api: Api, namespace: str, health: Health) -> None:
    """Have ``/readyz`` tell what ``missing_policy`` says, as of the last five minutes."""
    problem, read = "", partial(api.request, "GET")
    health.add_readiness("accounts-policy", lambda: HealthVerdict(note=problem))
    while True:
        before, problem = problem, await missing_policy(read, namespace)
        if problem and not before:
            log.warning(problem)
        await asyncio.sleep(_LOOK_S)


_LOOK_S = 300.0
_PATIENCE_S = 60.0


class Targets(Struct, frozen=True):
    """How to reach each of them."""

    objects: ApiServerTarget
    authentication: ApiServerTarget
    authorization: ApiServerTarget

    @classmethod
    def one(cls, target: ApiServerTarget) -> "Targets":
        """Return the same one for all."""
        return cls(target, target, target)


class ClusterConnections(Struct, frozen=True):
    """Connections to them; the same one where the target is the same."""

    objects: Api
    authentication: Api
    authorization: Api

    def needs(self, rights: Iterable[Right]) -> list[tuple[Api, Sequence[Right]]]:
        """Return each connection once, with those of ``rights`` that it makes use of."""
        users = {
            "authentication.k8s.io": self.authentication,
            "authorization.k8s.io": self.authorization,
        }
        found: dict[int, tuple[Api, list[Right]]] = {}
        for right in rights:
            api = users.get(right.group, self.objects)
            found.setdefault(id(api), (api, []))[1].append(right)
        return [*found.values()]


@asynccontextmanager
async def reached(targets: Targets, *, user_agent: str) -> AsyncIterator[ClusterConnections]:
    """Open the connections; leaving the context closes them. Raises ``NotConfigured``."""
    async with AsyncExitStack() as stack:
        three = (targets.objects, targets.authentication, targets.authorization)
        apis = {
            target: await stack.enter_async_context(connect(target, user_agent=user_agent))
            for target in set(three)
        }
        yield ClusterConnections(*(apis[target] for target in three))


async def discover(discovery: ApiDiscovery) -> None:
    """Read the cluster's resources for the first time; raises ``KubeError``.

    Nothing can start before: an API server that is restarting is waited for, one that is gone
    ends the process.
    """
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    pause_s = 0.5
    while True:
        try:
            await discovery.refresh()
            return
        except NotConfigured:
            raise
        except KubeError as error:
            if asyncio.get_running_loop().time() + pause_s > deadline:
                raise
            log.warning("the cluster's resources cannot be read yet", error=str(error))
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, 10.0)
