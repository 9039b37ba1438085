"""From the audit log to the passes of the in-tree controller: what each saw, what it wrote."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.cluster.beside_cast import Role
from tests.cluster.beside_stage import Told

IN_TREE = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
_HPAS = "horizontalpodautoscalers"


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


@dataclass
class Pass:
    """One pass over one HPA; it begins with the GET of the scale."""

    name: str
    scale: Request
    sizes: list[Request] = field(default_factory=list)  # PUTs of the scale
    statuses: list[Request] = field(default_factory=list)  # PUTs of the status
    told: list[Told] = field(default_factory=list)  # the metrics' answers, in order

    @property
    def ended(self) -> float:
        """When it did the last thing we know of."""
        times = [each.ended for each in (*self.sizes, *self.statuses, *self.told)]
        return max(times, default=self.scale.ended)


def passes(
    audit: Iterable[Mapping[str, Any]], told: Iterable[Told], roles: Iterable[Role]
) -> dict[str, list[Pass]]:
    """Return the passes by HPA, oldest first."""
    found: dict[str, list[Pass]] = {role.name: [] for role in roles}
    for entry in sorted(_of_in_tree(audit), key=lambda each: str(each["requestReceivedTimestamp"])):
        about = entry["objectRef"]
        name = about["name"]  # targets are named like their HPAs
        known = found.get(name)
        if known is None:
            continue
        request = Request(
            _time(entry["requestReceivedTimestamp"]),
            _time(entry["stageTimestamp"]),
            entry["responseStatus"]["code"],
            entry.get("requestObject"),
            entry.get("responseObject"),
        )
        if about["resource"] == _HPAS:
            known[-1].statuses.append(request)
        elif entry["verb"] == "update":
            known[-1].sizes.append(request)
        elif not (known and known[-1].sizes and known[-1].sizes[-1].code == 409
                  and not known[-1].statuses):  # fmt: skip
            known.append(Pass(name, request))
    _share(found, [each for each in told if each.user == IN_TREE])
    return found


def _of_in_tree(audit: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in audit:
        if entry["user"]["username"] != IN_TREE or entry["verb"] not in ("get", "update"):
            continue
        about = entry["objectRef"]
        if about.get("subresource") == ("status" if about["resource"] == _HPAS else "scale"):
            yield entry


def _share(found: Mapping[str, list[Pass]], told: list[Told]) -> None:
    """Give every answer to the pass of its HPA that was under way."""
    by_name: dict[str, list[Told]] = {}
    for each in sorted(told, key=lambda each: each.began):
        by_name.setdefault(_hpa_of(each, found), []).append(each)
    for name, mine in found.items():
        answers = by_name.get(name, [])
        for number, one in enumerate(mine):
            until = mine[number + 1].scale.began if number + 1 < len(mine) else float("inf")
            one.told = [each for each in answers if one.scale.began <= each.began < until]


def _hpa_of(told: Told, known: Mapping[str, object]) -> str:
    words = told.path.strip("/").split("/")
    query = dict(told.query)
    if "/pods" in told.path and "labelSelector" in query:
        return query["labelSelector"].partition("=")[2]
    last = words[-1].partition("-")[2]
    return last if last in known else words[-2]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
