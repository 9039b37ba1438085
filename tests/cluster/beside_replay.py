"""``decide`` in the place of the in-tree controller, pass by pass, on what each pass saw.

Our provider reads the logged answers through the paths it would ask itself; the pods go
through our store. What no log tells is tried both ways: pods that changed while the pass
was under way, and the exact moment at which it looked at its clock. A pass is *comparable*
when none of that makes a difference.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import unquote

from msgspec import structs

from hpa.cluster.podcolumns import SelectedPods
from hpa.cluster.questions import admitted, questions
from hpa.decide import (
    Observation,
    Outcome,
    Past,
    Scale,
    ScaleUnreadable,
    Settings,
    conclude,
    decide,
)
from hpa.decide.observation import MetricAnswer
from hpa.decide.pods import Pods
from hpa.decide.spec import HPA, Condition, HpaStatus
from hpa.machine.objects import Autoscaler, to_decide
from hpa.offline.evaluation import settings_for
from podscale.core.metrics import Question
from podscale.core.selector import parse
from podscale.kube.api import Method, Response
from podscale.kube.errors import ApiError
from podscale.kube.metrics_api import ApiProvider
from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.resource import DEPLOYMENTS, NAMESPACES, STATEFUL_SETS
from podscale.kube.restmapper import Mapper
from podscale.kube.watching import ListedState, ListPage, WatchPage
from podscale.kube.wire import decode
from tests.cluster.beside_passes import Pass
from tests.cluster.beside_stage import Told
from tests.cluster.beside_watch import History
from tests.tools.programs import release

_INFORMER_LAG_S = 0.25  # the controller's cache and our watch are told of a change apart
_CLOCK_S = 1.5  # the wire has whole seconds
_MOST_PASTS = 24
# What 1.37.2 shows for status.replicas 0, on amd64; the cases have 0, and so do we.
_QUOTIENT = '"averageValue": "-9223372036854775808m"'
_MAPPER = Mapper(
    (DEPLOYMENTS, STATEFUL_SETS, NAMESPACES),
    {"custom.metrics.k8s.io": ["v1beta2"]},
)


class UnaskedError(Exception):
    """We would have asked what the in-tree controller did not ask."""


class Recorded:
    """An ``Api`` that gives one pass the answers it got, each once, in order."""

    user_agent = "podscale-hpa/replay"

    def __init__(self, told: Iterable[Told]) -> None:
        self.left = list(told)

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        **_: object,
    ) -> Response:
        wanted = {key: value for key, value in (query or {}).items() if value}
        for each in self.left:
            asked = {key: value for key, value in each.query if value}
            if each.path == unquote(path) and asked == wanted:
                self.left.remove(each)
                if each.status >= 400:
                    told = json.loads(each.body)
                    raise ApiError.of(each.status, told["reason"], told["message"])
                return Response(each.status, {}, each.body)
        raise UnaskedError(f"{path} {wanted}")


class Discovered:
    """Discovery that knows what the plane serves."""

    mapper = _MAPPER


@dataclass
class Report:
    """What came of it."""

    passes: int = 0
    comparable: int = 0
    written: int = 0  # status writes among the passes
    others: Counter[str] = field(default_factory=Counter)  # why a pass was not comparable
    differences: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)  # of conditions, to show coverage


@dataclass(frozen=True)
class Sight:
    """One way in which the pass may have seen the world."""

    past: Past
    hpa: HPA
    pods: Pods
    now: float


class Replay:
    """All passes of one HPA, oldest first."""

    def __init__(
        self, name: str, namespace: str, hpas: History, pods: History, settings: Settings
    ) -> None:
        self._name, self._namespace = name, namespace
        self._hpas, self._settings = hpas, settings
        self._pods = {
            pod: pods
            for pod, told in pods.told.items()
            if any((state or {}).get("metadata", {}).get("labels", {}).get("app") == name
                   for _, state in told)
        }  # fmt: skip
        self._pasts = [Past()]
        self._columns: dict[tuple[str, ...], Pods] = {}

    async def compare(self, one: Pass, report: Report) -> None:
        """Decide as this pass must have, and tell the difference."""
        report.passes += 1
        report.written += bool(one.statuses)
        states = self._states_at(one)
        hpas = [_read(each) for each in states]
        if not hpas:
            report.others["the HPA was not seen yet"] += 1
            return
        try:
            answers, left = await self._answers(one, hpas[0])
        except UnaskedError as unasked:
            report.differences.append(f"{self._label(one)}: not asked in-tree: {unasked}")
            return
        if left:
            paths = [each.path for each in left]
            report.differences.append(f"{self._label(one)}: we would not have asked {paths}")
        scale = _scale(one)
        pods = self._pods_at(one)
        sights = [Sight(*each) for each in product(self._pasts, hpas, pods, _moments(one))]
        # From that quotient to 0, or back, upstream writes a status and we have nothing to.
        shown = (*states, *(each.sent for each in one.statuses))
        is_write_told = not any(map(_has_quotient, shown))
        results = [
            self._differences(one, sight, scale, answers, is_write_told=is_write_told)
            for sight in sights
        ]
        good = [past for found, past in results if not found]
        if not good:
            report.differences.append(f"{self._label(one)}: {results[0][0]}")
            self._pasts = [results[0][1]]
            return
        self._pasts = _distinct(good)
        if len(good) == len(results):
            report.comparable += 1
            for written in one.statuses[-1:]:
                conditions = written.sent["status"].get("conditions", ())
                report.reasons.update(each["reason"] for each in conditions)
        elif len(pods) + len(hpas) > 2:
            report.others["the pods or the HPA changed while it looked"] += 1
        else:
            report.others["it lay on the edge of a window"] += 1

    def _states_at(self, one: Pass) -> list[dict[str, Any]]:
        since = one.scale.began - _INFORMER_LAG_S
        seen = [each for each in self._hpas.versions(self._name, since, one.scale.began) if each]
        if one.statuses:
            # The write names the version that the pass had in its hands.
            version = one.statuses[0].sent["metadata"]["resourceVersion"]
            seen = [
                state
                for _, state in self._hpas.told[self._name]
                if state and state["metadata"]["resourceVersion"] == version
            ]
        return list(reversed(seen))

    async def _answers(
        self, one: Pass, hpa: HPA
    ) -> tuple[tuple[MetricAnswer | None, ...], list[Told]]:
        if not one.told:
            # Nothing was read: a correction to a bound, or no scale.
            return (), []
        recorded = Recorded(one.told)
        provider = ApiProvider(recorded, Discovered())  # type: ignore[arg-type]
        found: list[MetricAnswer | None] = []
        for asked in questions(hpa, f"app={self._name}", _MAPPER):
            if asked is None or not isinstance(asked, Question):
                found.append(asked)
            else:
                # One by one: in-tree asks twice where two metrics need one answer.
                found += admitted(await provider.answer([asked]))
        return tuple(found), recorded.left

    def _pods_at(self, one: Pass) -> list[Pods]:
        if not one.told:
            return [Pods()]
        since, until = one.scale.began - _INFORMER_LAG_S, one.ended + _INFORMER_LAG_S
        moments = {since}
        for name, watch in self._pods.items():
            moments |= {at for at, _ in watch.told[name] if since < at <= until}
        found = {}
        for at in sorted(moments):
            states = [
                state
                for name, watch in self._pods.items()
                if (state := watch.versions(name, at, at)[-1]) is not None
                and state["metadata"]["labels"].get("app") == self._name
            ]
            pods = self._made(states)
            found[repr(pods)] = pods
        return list(found.values())

    def _made(self, states: list[dict[str, Any]]) -> Pods:
        key = tuple(
            f"{each['metadata']['name']}/{each['metadata']['resourceVersion']}" for each in states
        )
        if key not in self._columns:
            store = PodStore(keep_annotations=())
            items = [decode(json.dumps(each).encode(), Pod) for each in states]
            for happening in (ListedState(), WatchPage(items, "1"), ListPage("1")):
                store.apply(happening, scope="", now=0.0)  # type: ignore[arg-type]
            found = store.select(self._namespace, parse(f"app={self._name}"))
            self._columns[key] = SelectedPods(lambda _ns, owner: owner).of(self._namespace, found)
        return self._columns[key]

    def _differences(
        self,
        one: Pass,
        sight: Sight,
        scale: Scale | ScaleUnreadable,
        answers: tuple[MetricAnswer | None, ...],
        *,
        is_write_told: bool,
    ) -> tuple[list[str], Past]:
        seen = Observation(sight.hpa, scale, sight.pods, answers)
        decision = decide(seen, sight.past, self._settings, sight.now)
        found = []
        sizes = sorted({each.sent["spec"].get("replicas", 0) for each in one.sizes})
        wanted = [] if decision.replicas is None else [decision.replicas]
        if sizes != wanted:
            found.append(f"sizes written {sizes}, decided {wanted}")
        done = conclude(decision, _outcome(one), one.sizes[-1].ended if one.sizes else sight.now)
        status = done.status
        if is_write_told and bool(one.statuses) != done.is_status_changed:
            found.append(f"status writes {len(one.statuses)}, changed {done.is_status_changed}")
        if one.statuses:
            sent = {**one.statuses[0].sent, "spec": {"maxReplicas": 1}}
            found += _status_differences(_read(sent).status, status)
        return found, done.past

    def _label(self, one: Pass) -> str:
        return f"{self._name} at {one.scale.began:.3f}"


def _read(found: dict[str, Any]) -> HPA:
    text = json.dumps(found)
    if _has_quotient(found):
        text = text.replace(_QUOTIENT, '"averageValue": "0"')
    return to_decide(decode(text.encode(), Autoscaler))


def _has_quotient(found: dict[str, Any]) -> bool:
    return settings_for(release()).guards_zero_status and _QUOTIENT in json.dumps(found)


def _scale(one: Pass) -> Scale | ScaleUnreadable:
    if one.scale.code >= 400:
        kind = "NotFound" if one.scale.code == 404 else "Other"
        return ScaleUnreadable(one.scale.message, "get", kind)  # type: ignore[arg-type]
    told = one.scale.answer
    status = told.get("status", {})
    return Scale(
        told["spec"].get("replicas", 0), status.get("replicas", 0), status.get("selector", "")
    )


def _outcome(one: Pass) -> Outcome:
    if not one.sizes or one.sizes[-1].code < 400:
        return Outcome()
    last = one.sizes[-1]
    return Outcome("conflict" if last.code == 409 else "failed", last.message)


def _moments(one: Pass) -> list[float]:
    """The first and the last moment at which the pass can have asked for the time."""
    first = max((each.ended for each in one.told), default=one.scale.ended)
    nexts = [each.began for each in (*one.sizes[:1], *one.statuses[:1])]
    return [first, max(min(nexts, default=first + 0.02), first)]


def _distinct(pasts: list[Past]) -> list[Past]:
    kept: dict[object, Past] = {}
    for past in pasts:
        recommended = tuple(each.replicas for each in past.recommendations or ())
        events = tuple(each.change for each in (*past.scale_ups, *past.scale_downs))
        # Moments that a slow pass leaves open may fall on two sides of a window's edge later.
        times = tuple(round(each.at, 1) for each in past.recommendations or ())
        kept.setdefault((past.recommendations is None, recommended, events, times), past)
    return list(kept.values())[:_MOST_PASTS]


def _status_differences(written: HpaStatus, ours: HpaStatus) -> list[str]:
    found = []
    for name in ("current_replicas", "desired_replicas", "metrics", "observed_generation"):
        theirs, mine = getattr(written, name), getattr(ours, name)
        if theirs != mine:
            found.append(f"{name}: written {theirs}, decided {mine}")
    if not _near(written.last_scale_s, ours.last_scale_s):
        found.append(f"lastScaleTime: {written.last_scale_s}, {ours.last_scale_s}")
    theirs_, mine_ = _timeless(written.conditions), _timeless(ours.conditions)
    if theirs_ != mine_:
        found.append(f"conditions: written {theirs_}, decided {mine_}")
    else:
        for their, my in zip(written.conditions, ours.conditions, strict=True):
            if not _near(their.transition_s, my.transition_s):
                found.append(f"{my.type}: since {their.transition_s}, {my.transition_s}")
    return found


def _timeless(conditions: Iterable[Condition]) -> list[Condition]:
    return [structs.replace(each, transition_s=None) for each in conditions]


def _near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _CLOCK_S
