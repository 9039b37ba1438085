"""``decide`` in the place of the in-tree controller, pass by pass, on what each pass saw.

What no log tells is tried in every way (``beside_sights``). A pass is *comparable* when none of
that makes a difference. Where we differ on purpose is in ``LISTED``; what fits only so is counted
under its name.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import structs

from hpa.decide.api.spec import HpaStatus
from hpa.decide.conclusion import conclude
from hpa.decide.conditions import DecisionEvent
from hpa.decide.decision import Outcome
from hpa.decide.observation import Past
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from podscale.kube.objects.autoscaler import AutoscalerCondition
from tests.cluster.beside_passes import Pass
from tests.cluster.beside_sights import Sight, Sights, UnaskedError, World, has_quotient, read

# Where we differ from Kubernetes on purpose: of which passes it speaks, and why.
LISTED: Mapping[str, str] = {
    "names-of-rivals": "Whose pods are others' too: the text names two of the HPAs in the order "
    "of a Go map, and so changes from pass to pass; ours names itself and the first other one.",
    "same-target": "Two HPAs on one workload that has no pods, or before the second one's first "
    "pass: Kubernetes finds them through pods and selectors alone and acts; ours stand still.",
    "not-a-number": "A value of one pod, or of another resource, is no number: Kubernetes takes "
    "the whole metric for failed; to us it is that pod's missing sample, or is not looked at.",
    "came-back": "An HPA was deleted and is there again before its next turn: Kubernetes, which "
    "remembers by name, goes on with the past of the other one; ours goes by UID.",
}
_CLOCK_S = 1.5  # the wire has whole seconds
_MOST_PASTS = 64
# Six threads of ours watch beside all else: a pod may be noted so late. Less than a period.
SLOW_WATCH_S = 2.0
_RIVALS = re.compile(r"\(e\.g\. \[[^]]*\]\)|multiple HPAs: \[[^]]*\]")


@dataclass
class Report:
    """What came of it."""

    passes: int = 0
    comparable: int = 0
    late: int = 0  # passes that fit only if a watch of ours was late
    written: int = 0  # status writes among the passes
    said: int = 0  # events among the passes
    others: Counter[str] = field(default_factory=Counter)  # why a pass was not comparable
    differences: list[str] = field(default_factory=list)
    listed: Counter[str] = field(default_factory=Counter)  # passes by name in ``LISTED``
    reasons: Counter[str] = field(default_factory=Counter)  # of conditions, to show coverage
    events: Counter[str] = field(default_factory=Counter)  # by reason


class Found(NamedTuple):
    """What deciding on a sight came to."""

    sight: Sight
    differences: list[str]
    notes: set[str]  # rules that made a text another one
    past: Past


class Replay:
    """All passes of one HPA, oldest first."""

    def __init__(self, sights: Sights, world: World, settings: Settings) -> None:
        self._sights, self._world, self._settings = sights, world, settings
        # With the rule under which Kubernetes would remember it.
        self._pasts: list[tuple[Past, str]] = [(Past(), "")]
        self._last: Pass | None = None

    async def compare(self, one: Pass, report: Report) -> None:
        """Decide as this pass must have, and tell the difference."""
        report.passes += 1
        report.written += bool(one.statuses)
        report.said += len(one.said)
        states = self._sights.states(one)
        if not states:
            report.others["the HPA was not seen yet"] += 1
            return
        self._remember_deletion(one)
        try:
            sights = await self._sights.of(one, states, self._pasts)
        except UnaskedError as unasked:
            report.differences.append(f"{_label(one)}: metrics were read otherwise: {unasked}")
            return
        found = [self._found(one, each, states) for each in sights]
        if all(each.differences for each in found):
            sights = await self._sights.of(one, states, self._pasts, SLOW_WATCH_S)
            late = [self._found(one, each, states) for each in sights]
            if any(not each.differences for each in late):
                report.late += 1
                found = late
        self._judge(one, found, report)
        self._last = one

    def _judge(self, one: Pass, found: Sequence[Found], report: Report) -> None:
        good = [each for each in found if not each.differences]
        if not good:
            pods = found[0].sight.pods
            report.differences.append(f"{_label(one)}: {found[0].differences}; with {pods}")
            self._pasts = [(found[0].past, "")]
            return
        ours = [each for each in good if not each.sight.rule]
        rule = "" if ours else good[0].sight.rule
        peers = [each for each in found if each.sight.rule == rule]
        report.listed.update(({rule} - {""}) | good[0].notes)
        # Until something speaks for one of them, it may have either past: also one of the same
        # recommendations whose moments, of which each has two, did not fit this once.
        rules, pasts = {each.sight.rule for each in good}, {_kind(each.past) for each in good}
        self._pasts = _distinct(
            [
                (each.past, each.sight.rule if ours and each.sight.rule == "came-back" else "")
                for each in found
                if each.sight.rule in rules and _kind(each.past) in pasts
            ]
        )
        if all(not each.differences for each in peers):
            report.comparable += 1
            for written in one.statuses[-1:]:
                conditions = written.sent["status"].get("conditions", ())
                report.reasons.update(each["reason"] for each in conditions)
            report.events.update(each.reason for each in one.said)
        elif (
            len({(id(each.sight.pods), id(each.sight.hpa), each.sight.rivals) for each in peers})
            > 1
        ):
            report.others["pods, rivals or the HPA changed while it looked"] += 1
        else:
            report.others["it lay on the edge of a window"] += 1

    def _remember_deletion(self, one: Pass) -> None:
        since = self._last.began if self._last else 0.0
        states = self._world.hpas.versions(one.name, since, one.began)
        if self._last and None in states:
            kept = [(past, "came-back") for past, _ in self._pasts]
            self._pasts = [(Past(), ""), *kept]

    def _found(self, one: Pass, sight: Sight, states: Sequence[dict[str, Any]]) -> Found:
        decision = decide(sight.observation, sight.past, self._settings, sight.now)
        found = []
        notes = set()
        sizes = sorted({each.sent["spec"].get("replicas", 0) for each in one.sizes})
        wanted = [] if decision.replicas is None else [decision.replicas]
        if sizes != wanted:
            found.append(f"sizes written {sizes}, decided {wanted}")
        done = conclude(decision, _outcome(one), one.sizes[-1].ended if one.sizes else sight.now)
        status = done.status
        # From that quotient to 0, or back, upstream writes a status and we have nothing to; and
        # it does where its names of rivals come in another order.
        shown = (*states, *(each.sent for each in one.statuses))
        is_write_told = not any(has_quotient(each) or _has_rivals(each) for each in shown)
        if is_write_told and bool(one.statuses) != done.is_status_changed:
            found.append(f"status writes {len(one.statuses)}, changed {done.is_status_changed}")
        if one.statuses:
            sent = {**one.statuses[0].sent, "spec": {"maxReplicas": 1}}
            theirs = read(sent).status
            found += _status_differences(_plain(theirs), _plain(status))
            if theirs.conditions != _plain(theirs).conditions:
                notes.add("names-of-rivals")
        said = [DecisionEvent(each.type, each.reason, each.message) for each in one.said]  # type: ignore[arg-type]
        if list(map(_plain_event, said)) != list(map(_plain_event, done.events)):
            found.append(f"events: said {said}, decided {list(done.events)}")
        named = _named([each.message for each in one.said])
        found += [f"a rival of ours: {each}" for each in named - {one.name, *sight.rivals}]
        return Found(sight, found, notes, done.past)


def _label(one: Pass) -> str:
    return f"{one.name} at {one.began:.3f}"


def _has_rivals(found: Mapping[str, Any]) -> bool:
    return "AmbiguousSelector" in json.dumps(found.get("status", {}))


def _named(texts: Iterable[str]) -> set[str]:
    """Return the HPAs that texts name as rivals."""
    lists = (_RIVALS.search(each) for each in texts)
    names = (name for found in lists if found for name in re.findall(r"[^[ ]+/[^] ]+", found[0]))
    return {name.partition("/")[2] for name in names}


def _plain(status: HpaStatus) -> HpaStatus:
    """Return the status without the names of rivals in its texts."""
    conditions = tuple(
        structs.replace(each, message=_RIVALS.sub("(two of them)", each.message))
        for each in status.conditions
    )
    return structs.replace(status, conditions=conditions)


def _plain_event(event: DecisionEvent) -> DecisionEvent:
    return structs.replace(event, message=_RIVALS.sub("(two of them)", event.message))


def _outcome(one: Pass) -> Outcome:
    last = one.statuses[-1] if one.statuses else None
    refused = last.message if last and last.code >= 400 else None
    if not one.sizes or one.sizes[-1].code < 400:
        return Outcome(status_error=refused)
    size = one.sizes[-1]
    return Outcome("conflict" if size.code == 409 else "failed", size.message, refused)


def _kind(past: Past) -> tuple[object, ...]:
    """Return what a past holds, without when it was."""
    recommended = tuple(each.replicas for each in past.recommendations or ())
    events = tuple(each.change for each in (*past.scale_ups, *past.scale_downs))
    return past.recommendations is None, recommended, events


def _moments(past: Past) -> list[float]:
    return [each.at for each in past.recommendations or ()]


def _distinct(pasts: Iterable[tuple[Past, str]]) -> list[tuple[Past, str]]:
    """Return of each kind the past with the earliest moments and the one with the latest.

    The moments of a pass lie between the two, and may fall on two sides of a window's edge later.
    """
    kept: dict[object, list[tuple[Past, str]]] = {}
    for past, rule in sorted(pasts, key=lambda each: each[1]):
        kept.setdefault(_kind(past), []).append((past, rule))
    found = []
    for alike in kept.values():
        own = [each for each in alike if each[1] == alike[0][1]]
        found += [choose(own, key=lambda each: _moments(each[0])) for choose in (min, max)]
    return found[:_MOST_PASTS]


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
            if not _near(their.last_transition_time, my.last_transition_time):
                found.append(
                    f"{my.type}: since {their.last_transition_time}, {my.last_transition_time}"
                )
    return found


def _timeless(conditions: Iterable[AutoscalerCondition]) -> list[AutoscalerCondition]:
    return [structs.replace(each, last_transition_time=None) for each in conditions]


def _near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _CLOCK_S
