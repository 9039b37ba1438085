"""Lets all ballast go when no leader's rounds work, and takes the taints of mode taint away: a
process beside the nodes part, with an account that may do nothing else.

What nobody looks after keeps pods out by a load that has long gone.
"""

import asyncio
import math
import time
from collections.abc import Callable

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import LEASES, PODS
from podscale.kube.client.wire import ListOf, decode, parse_time
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.cluster import Lease
from podscale.kube.objects.pod import Pod
from podscale.nodes.cluster.patches import LEAST_REQUESTS, each_of, remove_taints, resize
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.scheduling.cluster_reading import read_one

log = structlog.get_logger(__name__)

# On the Lease: when a round of the leader worked last. That the Lease is renewed shows less: a
# leader that can decide or write nothing renews it as well.
LAST_ROUND = "nodes.podscale.io/last-round"


class WatchdogChoice(Struct, frozen=True):
    """Which Lease is watched, and which ballast is let go."""

    namespace: str = "podscale-ballast"
    lease: str = "podscale-nodes"
    lease_namespace: str = "podscale"
    patience_s: float = 300.0
    interval_s: float = 15.0
    takes_taints: bool = False


class RoundAge:
    """How long ago a round worked: counted here from when its time was seen to change, so that
    clocks that differ do not matter after the first look."""

    def __init__(self) -> None:
        self._seen: float | None = None
        self._changed: float | None = None

    def note(self, worked_s: float | None, *, now: float, wall_s: float) -> float:
        """Return its age at ``now`` (monotonic); ``worked_s`` None: nobody says when."""
        if self._changed is None:
            # Before the first look only the writer's clock can tell.
            self._changed = now - (0.0 if worked_s is None else max(0.0, wall_s - worked_s))
        elif worked_s != self._seen:
            self._changed = now
        self._seen = worked_s
        return now - self._changed


async def watch(
    api: Api,
    choice: WatchdogChoice,
    *,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> None:
    """Look at the Lease for ever; while no round has worked for the patience, keep all ballast
    at its least, and nodes without the taint."""
    age, was_kept, was_unknown, next_s = RoundAge(), True, "", -math.inf
    lease = f"{choice.lease_namespace}/{choice.lease}"
    log.info("watching", lease=lease, patience_s=choice.patience_s, ballast=choice.namespace)
    while True:
        try:
            now = clock()
            worked_s, unknown = await _last_round(api, choice)
            age_s = age.note(worked_s, now=now, wall_s=wall())
            is_kept = age_s <= choice.patience_s
            since = {"why": unknown} if unknown else {"worked_s_ago": round(age_s)}
            if unknown != was_unknown and unknown:
                log.warning("not known when a round worked", lease=lease, **since)
            if is_kept != was_kept:
                log.warning("rounds work again" if is_kept else "no leader looks after ballast: it "
                            "is let go", lease=lease, **since)  # fmt: skip
            was_kept, was_unknown = is_kept, unknown
            # None was held, as in mode shadow: a list with a pod of every node can wait.
            if not is_kept and now >= next_s and not await let_go(api, choice.namespace):
                next_s = now + choice.patience_s
            if not is_kept and choice.takes_taints:
                await remove_taints(api)
        except (KubeError, msgspec.DecodeError) as error:
            log.warning("not looked at", error=str(error))
        await asyncio.sleep(choice.interval_s)


async def let_go(api: Api, namespace: str) -> int:
    """Bring all ballast to its least; returns how many pods held more."""
    answer = await api.request(
        "GET", PODS.path(namespace), query={"labelSelector": str(BALLAST_LABELS)}
    )
    pods = [pod for pod in decode(answer.body, ListOf[Pod]).items or () if _is_held(pod)]

    async def least(pod: Pod) -> str:
        meta = pod.metadata
        return await resize(api, None, namespace, meta.name, meta.uid, LEAST_REQUESTS)

    done = (await each_of(pods, least)).count("done")
    if done:
        log.info("ballast let go", pods=done)
    return len(pods)


async def _last_round(api: Api, choice: WatchdogChoice) -> tuple[float | None, str]:
    # When it worked, or why that is not known.
    try:
        path = LEASES.path(choice.lease_namespace, choice.lease)
        lease = await read_one(api, path, Lease)
        return parse_time((lease.metadata.annotations or {})[LAST_ROUND]), ""
    except ObjectNotFound:
        return None, "there is no such Lease: --lease and --lease-namespace name the part's"
    except (KeyError, ValueError):
        return None, "whoever leads looks after no ballast, as in mode shadow"


def _is_held(pod: Pod) -> bool:
    has = [amounts(container.resources.requests) for container in pod.spec.containers]
    least = {"cpu": LEAST_REQUESTS[0], "memory": 1000 * LEAST_REQUESTS[1]}
    return any(each.get(name, 0) > amount for each in has for name, amount in least.items())
