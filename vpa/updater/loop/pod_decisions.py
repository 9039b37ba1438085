"""What the updater last said about every pod, by VPA: explanations read it."""

from collections.abc import Callable, Mapping

import msgspec

from podscale.kube.columns.pod_set import PodView
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.decide.decision import AppliedDecision, PodDecision, UpdateDecision


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
