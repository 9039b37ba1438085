"""What the updater remembers of earlier loops: what it last said about every pod, by VPA, which
explanations read; how many pods of a VPA were disturbed within a day, where an annotation limits
that; and whether evicted pods come back sized: where they do not, evicting more helps nobody.

The Lease says that a webhook runs, not that the API server reaches it, for these pods. What
comes back says it: both our webhook and upstream's write ``vpaObservedContainers`` on every
pod that a VPA sizes.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime

import msgspec
import structlog

from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import Forbidden, KubeError
from podscale.kube.client.resource import VPAS
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import StoredVpa
from vpa.admission.patches.patch import OBSERVED
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.decide.decision import AppliedDecision, PodDecision, UpdateDecision
from vpa.updater.decide.disruption_budget import SPENT, Owner


def gist(decision: UpdateDecision) -> tuple[str, str]:
    """Return what makes a decision another one: the action and the reason named first."""
    return decision.action, decision.reasons[0]


class PodDecisions:
    def __init__(self) -> None:
        self._by_vpa: dict[VpaKey, dict[str, PodDecision]] = {}
        self._vpa_of: dict[tuple[str, str], VpaKey] = {}
        # Called with the VPA when an action or a first reason about a pod is another one, and
        # when nothing of its pods stands any more because the term has ended.
        self.followers: list[Callable[[VpaKey], None]] = []

    def note(self, pod: PodView, key: VpaKey, decision: UpdateDecision, now: float) -> None:
        """Keep what was decided about a pod."""
        place = (pod.namespace, pod.name)
        before = self._vpa_of.get(place)
        if before is not None and before != key:
            self._drop(place)
        self._vpa_of[place] = key
        pods = self._by_vpa.setdefault(key, {})
        last = pods.get(pod.name)
        act = last.act if last is not None else None
        pods[pod.name] = PodDecision(pod.name, now, decision, act)
        if last is None or gist(last.decision) != gist(decision):
            self._tell(key)

    def did(self, pod: PodView, key: VpaKey, act: AppliedDecision) -> None:
        """Keep that a pod was evicted or resized."""
        pods = self._by_vpa.get(key, {})
        last = pods.get(pod.name)
        if last is not None:
            pods[pod.name] = msgspec.structs.replace(last, act=act)

    def of(self, key: VpaKey) -> Mapping[str, PodDecision]:
        """Return what was said about the pods of one VPA, by name."""
        return self._by_vpa.get(key, {})

    def everything(self) -> list[PodDecision]:
        return [each for pods in self._by_vpa.values() for each in pods.values()]

    def forget(self, stores: VpaStores) -> None:
        """Drop pods that are gone."""
        for place in [place for place in self._vpa_of if not stores.pods.exists(*place)]:
            self._drop(place)

    def clear(self) -> None:
        """Drop everything, and tell the followers."""
        dropped = list(self._by_vpa)
        self._by_vpa.clear()
        self._vpa_of.clear()
        for key in dropped:
            self._tell(key)

    def _tell(self, key: VpaKey) -> None:
        for follower in self.followers:
            follower(key)

    def _drop(self, place: tuple[str, str]) -> None:
        key = self._vpa_of.pop(place)
        pods = self._by_vpa[key]
        del pods[place[1]]
        if not pods:
            del self._by_vpa[key]


_log = structlog.get_logger()

_HOUR_S, _DAY_S = 3600.0, 86400.0
_MOST = 10**9  # disruptions: nobody's budget
_HOUR = "%Y-%m-%dT%H"
_TIMEOUT_S = 10.0

Hours = dict[float, int]  # begin of the hour, unix seconds: disruptions


class DailyBudgets:
    """The daily counts of the VPAs that have a daily budget, for one term of leadership.

    Written on the VPA before a pod is touched, so that neither a restart nor another leader nor
    an answer that got lost gives a day more than its budget. Kept by the hour: an hour counts
    until it is a day past, so a day is at most an hour longer than 24.
    """

    def __init__(self, api: Api, stores: VpaStores) -> None:
        """``api`` is fenced by the Lease, where there is one."""
        self._api = api
        self._stores = stores
        self._hours: dict[VpaKey, Hours] = {}
        self._has_told = False

    def begin(self) -> None:
        """Forget everything: another leader may have spent since."""
        self._hours.clear()

    def forget(self, now: float) -> None:
        """Drop what is over of VPAs that are gone."""
        for key in [key for key in self._hours if self._stores.vpas.get(*key) is None]:
            if not _recent(self._hours[key], now):
                del self._hours[key]

    async def today(self, key: VpaKey, now: float) -> int | None:
        """Return how many pods were disturbed; None: nobody can say."""
        hours = self._hours.get(key)
        if hours is None:
            try:
                # Not from the watch: the last leader's last write may not have arrived by it.
                answer = await self._api.request("GET", VPAS.path(*key), timeout_s=_TIMEOUT_S)
                stored = decode(answer.body, StoredVpa)
            except (KubeError, msgspec.DecodeError) as error:
                _log.warning("disruptions of today not read", **key._asdict(), error=str(error))
                return None
            hours = self._hours[key] = hours_of(stored.metadata.annotations)
        return sum(_recent(hours, now).values())

    async def spend(self, key: VpaKey, now: float) -> bool:
        """Count a disruption that is about to begin; False: it must not, it is not written."""
        hours = _recent(self._hours.get(key, {}), now)
        hour = now // _HOUR_S * _HOUR_S
        hours[hour] = hours.get(hour, 0) + 1
        body = encode({"metadata": {"annotations": {SPENT: hours_text(hours)}}})
        try:
            answer = await self._api.request(
                "PATCH", VPAS.path(*key), body=body, content_type=MERGE_PATCH, timeout_s=_TIMEOUT_S
            )
            self._stores.vpas.accept(decode(answer.body, StoredVpa))
        except Forbidden as refused:
            # Upstream's rights do not include it: the count then lasts as long as we do.
            if not self._has_told:
                self._has_told = True
                _log.warning("disruptions of today last until a restart only: VPAs may not be "
                             "patched", error=refused.message)  # fmt: skip
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("nothing disturbed: the disruption cannot be counted",
                         **key._asdict(), error=str(error))  # fmt: skip
            return False
        self._hours[key] = hours
        return True

    def refund(self, key: VpaKey, now: float) -> None:
        """Take back a disruption that was refused; written with the next one."""
        hour = now // _HOUR_S * _HOUR_S
        hours = self._hours.get(key, {})
        hours[hour] = max(hours.get(hour, 0) - 1, 0)


def hours_of(annotations: Mapping[str, str] | None) -> Hours:
    """Return the hours of an annotation; entries that cannot be read count for nothing."""
    hours: Hours = {}
    for entry in (annotations or {}).get(SPENT, "").split(","):
        text, _, count = entry.strip().rpartition(":")
        try:
            begin = datetime.strptime(text, _HOUR).replace(tzinfo=UTC).timestamp()
            hours[begin] = hours.get(begin, 0) + min(max(int(count), 0), _MOST)
        except ValueError:
            continue
    return hours


def hours_text(hours: Hours) -> str:
    return ", ".join(
        f"{datetime.fromtimestamp(begin, UTC).strftime(_HOUR)}:{count}"
        for begin, count in sorted(hours.items())
        if count
    )


def _recent(hours: Hours, now: float) -> Hours:
    return {begin: count for begin, count in hours.items() if now - begin < _DAY_S + _HOUR_S}


_WATCHED_S = 600.0  # what comes so long after an eviction came because of it
_PAUSE_S, _MOST_PAUSE_S = 600.0, 3600.0  # doubled with every try that fails


class _Group:
    def __init__(self) -> None:
        self.known: Set[str] = frozenset()  # UIDs of pods that no eviction of ours brought
        self.evicted_at = 0.0
        self.held_until: float | None = None  # None: they come back sized, as far as we know
        self.pause_s = _PAUSE_S
        self.is_tried = False  # one was evicted to see whether it is mended


class ResizedReturns:
    """What came back after our evictions, by VPA and direct controller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._groups: dict[tuple[VpaKey, Owner], _Group] = {}

    def evicted(self, key: VpaKey, owner: Owner, known: Set[str]) -> None:
        """Note an eviction; ``known``: UIDs of the group's pods when its turn began, those that no
        node had been found for with them: they are no answer to it."""
        group = self._groups.setdefault((key, owner), _Group())
        group.known |= known
        group.evicted_at = self._clock()
        group.is_tried = group.held_until is not None

    def look(self, key: VpaKey, owner: Owner, pods: Sequence[PodView]) -> bool:
        """Look at a group's pods, scheduled or not; returns whether it is held from now on."""
        group, now = self._groups.get((key, owner)), self._clock()
        if group is None:
            return False
        new = [pod for pod in pods if pod.uid not in group.known]
        group.known = {pod.uid for pod in pods}
        if not new:
            return False
        if all(OBSERVED in pod.annotations for pod in new):
            group.held_until, group.pause_s, group.is_tried = None, _PAUSE_S, False
            return False
        is_ours = now - group.evicted_at < _WATCHED_S
        # The others that were evicted with the first one are no try of their own.
        if not is_ours or (group.held_until is not None and not group.is_tried):
            return False
        if group.is_tried:
            group.pause_s = min(group.pause_s * 2, _MOST_PAUSE_S)
        group.held_until, group.is_tried = now + group.pause_s, False
        return True

    def held_s(self, key: VpaKey, owner: Owner) -> float | None:
        """Return in how long the next pod of the group may go; None: now."""
        group, now = self._groups.get((key, owner)), self._clock()
        if group is None or group.held_until is None:
            return None
        # After the pause one goes, and what comes back decides about the others.
        until = group.evicted_at + _WATCHED_S if group.is_tried else group.held_until
        return until - now if until > now else None

    def forget(self) -> None:
        """Drop groups about which nothing was learned for long."""
        now = self._clock()
        for place, group in list(self._groups.items()):
            if now - max(group.evicted_at, group.held_until or 0.0) > _MOST_PAUSE_S:
                del self._groups[place]
