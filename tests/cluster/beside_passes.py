"""From the audit log to the passes of the in-tree controller: what each saw, wrote and said.

What it said is in its log, word for word; of the Events themselves its recorder drops many.
"""

import contextlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from hpa.cluster.targets import NotConvertible, converted
from tests.cluster.beside_cast import Role
from tests.cluster.beside_stage import Told

IN_TREE = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
LOGGED = ("--logging-format=json", "--v=3")  # from 3 on it logs every event
_HPAS = "horizontalpodautoscalers"
_LATE_S = 0.02  # its log is written apart from the pass
_AT_ONCE_S = 1.0  # far less than a period: no HPA begins two passes in it


@dataclass(frozen=True)
class Request:
    """One request that the API server answered."""

    began: float
    ended: float
    code: int
    sent: Any
    answer: Any

    @property
    def message(self) -> str:
        """What the API server's refusal says."""
        return str((self.answer or {}).get("message", ""))


@dataclass(frozen=True)
class Said:
    """One event."""

    at: float
    name: str
    type: str
    reason: str
    message: str


@dataclass
class Pass:
    """One pass over one HPA. It begins with the GET of the scale, if it comes so far."""

    name: str
    began: float
    scale: Request | None
    sizes: list[Request] = field(default_factory=list)  # PUTs of the scale
    statuses: list[Request] = field(default_factory=list)  # PUTs of the status
    told: list[Told] = field(default_factory=list)  # the metrics' answers, in order
    said: list[Said] = field(default_factory=list)
    rereads: int = 0  # GETs of the scale after PUTs that were refused

    @property
    def ended(self) -> float:
        """When it did the last thing we know of."""
        times = [each.ended for each in (*self.sizes, *self.statuses, *self.told)]
        return max(times, default=self.scale.ended if self.scale else self.began)

    @property
    def registers(self) -> bool:
        """Whether it came as far as the pods, and so made its selector known to the others."""
        return bool(self.told) or self.has_rivals

    @property
    def has_rivals(self) -> bool:
        """Whether it found others to select its pods."""
        return any(each.reason == "AmbiguousSelector" for each in self.said)


def passes(
    namespace: str,
    audit: Iterable[Mapping[str, Any]],
    told: Iterable[Told],
    log: Path,
    roles: Sequence[Role],
) -> dict[str, list[Pass]]:
    """Return the passes by HPA, oldest first."""
    found: dict[str, list[Pass]] = {role.name: [] for role in roles}
    targets: dict[tuple[str, str], list[str]] = {}
    for role in roles:
        targets.setdefault(role.target, []).append(role.name)
    said = list(_said(namespace, log))
    kindless = {role.name for role in roles if not role.target[0]}
    for each in said:
        if each.name in kindless and each.reason == "FailedGetScale":
            found[each.name].append(Pass(each.name, each.at - _LATE_S, None))
    entries = sorted(
        _of_in_tree(namespace, audit), key=lambda each: str(each["requestReceivedTimestamp"])
    )
    signs: dict[str, list[float]] = {role.name: [] for role in roles}
    for each in said:
        signs.setdefault(each.name, []).append(each.at)
    for entry in entries:
        if entry["objectRef"]["resource"] == _HPAS:
            signs[entry["objectRef"]["name"]].append(_time(entry["requestReceivedTimestamp"]))
    for entry in entries:
        about = entry["objectRef"]
        request = Request(
            _time(entry["requestReceivedTimestamp"]),
            _time(entry["stageTimestamp"]),
            entry["responseStatus"]["code"],
            entry.get("requestObject"),
            entry.get("responseObject"),
        )
        if about["resource"] == _HPAS:
            _under_way(found[about["name"]], request.began).statuses.append(request)
            continue
        names = targets[about["resource"], about["name"]]
        last = max(names, key=lambda name: _began(found[name]))
        if entry["verb"] == "update":
            found[last][-1].sizes.append(request)
        elif not (found[last] and _reads_again(found[last][-1])):
            name = _whose(names, found, signs, request.began)
            found[name].append(Pass(name, request.began, request))
        else:
            found[last][-1].rereads += 1
    for event in said:
        mine = found.get(event.name, [])
        if mine and event.at >= mine[0].began:
            _who_said(mine, event).said.append(event)
    selectors = _selectors(found)
    for answer in sorted(told, key=lambda each: each.began):
        if answer.user == IN_TREE and f"/namespaces/{namespace}/" in answer.path:
            names = _hpas_of(answer, found, selectors)
            among = [_under_way(found[name], answer.began) for name in names]
            # Who stands still for a rival reads no metrics.
            among = [one for one in among if not one.has_rivals] or among
            max(among, key=lambda one: one.began).told.append(answer)
    return found


def _of_in_tree(namespace: str, audit: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in audit:
        if entry["user"]["username"] != IN_TREE or entry["verb"] not in ("get", "update"):
            continue
        about = entry["objectRef"]
        part = "status" if about["resource"] == _HPAS else "scale"
        if about.get("subresource") == part and about["namespace"] == namespace:
            yield entry


def _said(namespace: str, log: Path) -> Iterator[Said]:
    for line in log.read_text().splitlines():
        if '"msg":"Event occurred"' in line:
            logged = json.loads(line)
            about = logged["object"]
            if about["namespace"] == namespace:
                words = (logged[key] for key in ("type", "reason", "message"))
                yield Said(logged["ts"] / 1000, about["name"], *words)


def _began(mine: Sequence[Pass]) -> float:
    return mine[-1].began if mine else 0.0


def _whose(
    names: Sequence[str],
    found: Mapping[str, Sequence[Pass]],
    signs: Mapping[str, Sequence[float]],
    at: float,
) -> str:
    """Return which of the HPAs on one target began a pass: of those that have not just begun one,
    the one that shows a sign of it next, an event or a status."""

    def sign(name: str, since: float) -> float:
        return min((each for each in signs[name] if each >= since), default=float("inf"))

    free = [name for name in names if _began(found[name]) < at - _AT_ONCE_S]
    return min(free or names, key=lambda name: (sign(name, at), _began(found[name])))


def _who_said(mine: Sequence[Pass], event: Said) -> Pass:
    # The log is written beside the pass. After a refused status the next pass may follow within
    # milliseconds: then only the refusal says whose event it was.
    found = _under_way(mine, event.at)
    if event.reason != "FailedUpdateStatus":
        return found
    refused = (
        one
        for one in reversed(mine)
        if one.began <= found.began and any(each.code >= 400 for each in one.statuses)
    )
    return next(refused, found)


def _under_way(mine: Sequence[Pass], at: float) -> Pass:
    return mine[max(bisect_right(mine, at, key=lambda one: one.began) - 1, 0)]


def _reads_again(one: Pass) -> bool:
    """Whether the next GET belongs to it: one follows each PUT that was refused."""
    return sum(each.code >= 400 for each in one.sizes) > one.rereads


def _selectors(found: Mapping[str, Sequence[Pass]]) -> dict[str, set[str]]:
    """Return whose pods each selector has asked about."""
    names: dict[str, set[str]] = {}
    for name, mine in found.items():
        texts = {
            one.scale.answer["status"].get("selector", "")
            for one in mine
            if one.scale and one.scale.code < 400
        }
        for text in texts:
            with contextlib.suppress(NotConvertible):
                names.setdefault(converted(text), set()).add(name)
    return names


def _hpas_of(
    told: Told, known: Mapping[str, object], selectors: Mapping[str, set[str]]
) -> set[str]:
    words = told.path.strip("/").split("/")
    query = dict(told.query)
    if "/pods" in told.path and "labelSelector" in query:
        return selectors[query["labelSelector"]]
    last = words[-1].partition("-")[2]
    return {last if last in known else words[-2]}


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
