"""An API server in bad weather, in memory and in virtual time; judges every write it takes.

Replicas of the controller reach it through a ``Line`` each, which can be cut or frozen.
``Judge`` knows what the script made true and finds a write that must never be.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from podscale.kube.client.api import Method, Response
from podscale.kube.client.errors import (
    ApiUnreachable,
    Forbidden,
    ObjectNotFound,
    ServerFailed,
    Unprocessable,
    WriteConflict,
)
from tests.kit.api import FakeApi, Sent, ok
from tests.unit.hpa.world import NS, World, history_of, writer

LEASE = "podscale-hpa"
_LONG_S = 20.0  # a pass, with its answers and its writes, has ended by then
_FOREVER_S = 1e6
_EDGE_S = 2.0  # stored times are rounded, statuses have whole seconds
_STORED_S = 10.0  # a term that lasts has stored a history by then
_DECIDED_S = 12.0  # a write may come so much later than its decision


class Given(Struct, frozen=True):
    """What the provider told one replica about one metric of one HPA, last."""

    is_good: bool
    ratio: float  # of what was told to the target


class Rescale(Struct, frozen=True):
    """One size that was written."""

    replica: str
    time: float  # that really passed
    jump: float  # of the wall clock, by then
    before: int
    after: int


class Judge:
    """Finds what must never be; ``found`` is empty where all invariants held."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.given: dict[tuple[str, str], dict[str, Given]] = {}  # by replica and HPA
        self.specs: dict[str, list[tuple[float, Any]]] = {}
        self.log: dict[str, list[Rescale]] = {}
        self.broken_since: dict[str, float] = {}  # replica → its watch is down
        # HPA → until when no policy is judged: its history is lost, as upstream would lose it,
        # but only what happened within the policy's period before.
        self.unsettled: dict[str, float] = {}
        self.judged = self.exempted = 0  # rescales under a policy, and those not judged by it
        self.unstored: dict[str, Rescale] = {}  # the first rescale of HPAs never stored yet
        self.jumps: list[tuple[float, float]] = [(0.0, 0.0)]  # when; of the wall clock in sum
        self.known: set[str] = set()  # whose history has been stored
        self.rescales = self.statuses = self.lowered = self.refused = 0

    def allowed(self, replica: str, name: str, now: float) -> list[Any]:
        """Return the specs by which a write at ``now`` may have been decided."""
        specs = self.specs[name]
        # Whose watch is down knows what it saw last, and may still grow by it.
        since = min(self.broken_since.get(replica, now), now) - _LONG_S
        recent = [spec for at, spec in specs if at > since]
        older = [spec for at, spec in specs if at <= since]
        return [*older[-1:], *recent]

    def size(self, replica: str, name: str, before: int, after: int, now: float) -> None:
        """Judge a size that is about to be stored (invariants 1 and 2)."""
        self.rescales += 1
        specs = self.allowed(replica, name, now)
        is_correction = any(
            (before > spec["maxReplicas"] == after) or (before < spec["minReplicas"] == after)
            for spec in specs
        )
        what = f"t={now:.2f} {replica} {name}: {before} -> {after}"
        if after < before:
            self.lowered += 1
            since = self.broken_since.get(replica)
            if since is not None and now - since > _LONG_S:
                self.found.append(f"{what} while the watch was down since {since:.2f}")
            if not is_correction:
                self._lowering(replica, name, what)
        if is_correction:
            return
        if not any(spec["minReplicas"] <= after <= spec["maxReplicas"] for spec in specs):
            self.found.append(f"{what} outside of the bounds")
        first = self.unstored.get(name)
        if first is not None and (first.replica != replica or now - first.time > _STORED_S):
            self.unsettle(name)
            del self.unstored[name]
        behavior = specs[-1].get("behavior")
        if behavior and before and now < self.unsettled.get(name, 0.0):
            self.exempted += 1
        elif behavior and before:
            self.judged += 1
            self._policy(name, before, after, behavior, what)

    def unsettle(self, name: str) -> None:
        """Judge no policy of one HPA for as long as it reaches back."""
        behavior = self.specs[name][-1][1].get("behavior") or {}
        periods = [
            policy["periodSeconds"]
            for rules in behavior.values()
            for policy in rules.get("policies", ())
        ]
        now = asyncio.get_running_loop().time()
        self.unsettled[name] = now + max(periods, default=0.0)

    def remember(self, replica: str, name: str, before: int, after: int) -> None:
        """Note a rescale that happened: the controller was told, or sees the size."""
        now = asyncio.get_running_loop().time()
        rescale = Rescale(replica, now, self.jumps[-1][1], before, after)
        self.log.setdefault(name, []).append(rescale)
        if name not in self.known:
            self.unstored.setdefault(name, rescale)

    def stored(self, records: dict[str, Any]) -> None:
        """Note histories that are stored. Who finds none of an object, and no status, cannot
        know that the leader before gave it another size in its first moments."""
        for key, record in records.items():
            name = key.partition("/")[2]
            first = self.unstored.pop(name, None)
            changes = [change for change, _ in (*record.get("ups", ()), *record.get("downs", ()))]
            if first is not None and abs(first.after - first.before) not in changes:
                self.unsettle(name)
            self.known.add(name)

    def _lowering(self, replica: str, name: str, what: str) -> None:
        given = self.given.get((replica, name), {})
        bad = [metric for metric, each in given.items() if not each.is_good]
        loaded = [
            metric
            for metric, each in given.items()
            if each.ratio >= 1.0 and not metric.startswith("queue")
        ]
        if not given or bad or loaded:
            self.found.append(f"{what} with bad {bad}, loaded {loaded} of {sorted(given)}")

    def _policy(self, name: str, before: int, after: int, behavior: Any, what: str) -> None:
        direction = "scaleUp" if after > before else "scaleDown"
        (policy,) = behavior[direction]["policies"]
        period, value = policy["periodSeconds"], policy["value"]
        is_up = after > before
        same = self._changes(name, period, is_up=is_up, is_certain=True)
        other = self._changes(name, period, is_up=not is_up, is_certain=False)
        start = before + (other - same if is_up else same - other)
        if policy["type"] == "Pods":
            limit = start + (value if is_up else -value)
        else:
            limit = int(start * (1 + value / 100)) + 1 if is_up else int(start * (1 - value / 100))
        if (after > max(limit, before)) if is_up else (after < min(limit, before)):
            log = self.log.get(name, [])[-4:]
            self.found.append(f"{what} past {limit} of {policy}, after {log}")

    def _changes(self, name: str, period: float, *, is_up: bool, is_certain: bool) -> int:
        """Sum what counts surely, or what may count.

        Who leads moves what it remembers with the clock. Who takes over knows of a jump since
        the history was stored only if it saw the Lease renewed before and none after, and may
        else see it younger or older by that.
        """
        now = asyncio.get_running_loop().time()
        total = 0
        for each in self.log.get(name, ()):
            if (each.after > each.before) != is_up:
                continue
            jumped = [jump - each.jump for at, jump in self.jumps if at >= each.time - _DECIDED_S]
            jumped += [self.jumps[-1][1] - each.jump, 0.0]
            age_s = now - each.time
            if is_certain:
                counts = age_s + max(jumped) < period - _EDGE_S
            else:
                counts = age_s + min(jumped) < period + _DECIDED_S
            if counts:
                total += abs(each.after - each.before)
        return total


class Weather(World):
    """The world with Leases, faults, and a judge."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.draw = draw
        self.judge = Judge()
        self.lease: dict[str, Any] | None = None
        self.faults = 0.0  # the share of requests that fail
        self.slow_s = 0.0  # what a request may take besides; below what a Lease outlives a term by
        self.changes = 0  # counts what watches would tell

    @property
    def holder(self) -> str:
        """Who holds the Lease, as stored."""
        return (self.lease or {}).get("spec", {}).get("holderIdentity") or ""

    def take(self, method: Method, path: str, sent: Any, replica: str) -> Any:
        """Store and answer; judged first."""
        if "/leases" in path:
            return self._lease(method, path, sent)
        now = asyncio.get_running_loop().time()
        parts = path.strip("/").split("/")
        if method == "GET" or "configmaps" in parts:
            if method != "GET":
                self.judge.stored(msgspec.json.decode(history_of(sent)))
            return self._answer(method, parts, sent)
        if self.holder != replica:
            self.judge.found.append(
                f"t={now:.2f} {replica} wrote {path} while {self.holder!r} held the Lease"
            )
        if not sent["metadata"].get("resourceVersion"):
            self.judge.found.append(f"{path}: a write without resourceVersion")
        key, before = (parts[-4], parts[-2]), 0
        if parts[-1] == "scale" and (target := self.workloads.get(key)) is not None:
            before = target["spec"]["replicas"]
        elif key not in self.hpas:
            raise ObjectNotFound(404, "NotFound", f'"{key[1]}" not found')
        answer = self._answer(method, parts, sent)
        self.changes += 1
        if parts[-1] == "scale":
            after = sent["spec"]["replicas"]
            self.judge.size(replica, key[1], before, after, now)
            self.judge.remember(replica, key[1], before, after)
        else:
            self.judge.statuses += 1
            answer["metadata"]["managedFields"] = [writer("podscale-hpa", "2026-11-21T10:00:00Z")]
        return answer

    def fate(self, method: Method, path: str) -> "Exception | str | None":
        """Return how a request ends: None is well, "lost" is done and never answered."""
        if self.draw.random() >= self.faults:
            return None
        is_lease = "/leases" in path
        choices: tuple[Exception | str, ...] = (
            ServerFailed(500, "InternalError", "etcd is unwell"),
            ApiUnreachable("connection reset"),
            ServerFailed(503, "ServiceUnavailable", "overloaded"),
        )
        if method != "GET" and not is_lease and "configmaps" not in path:
            choices = (
                *choices,
                WriteConflict(409, "Conflict", "the object has been modified"),
                Forbidden(403, "Forbidden", "not today"),
                Unprocessable(422, "Invalid", "not like this"),
                "lost",
            )
        return self.draw.choice(choices)

    def _lease(self, method: Method, path: str, sent: Any) -> Any:
        if method == "GET":
            if self.lease is None:
                raise ObjectNotFound(404, "NotFound", LEASE)
            return self.lease
        if method == "POST" and self.lease is not None:
            raise WriteConflict(409, "AlreadyExists", LEASE)
        if method == "PUT":
            if self.lease is None:
                raise ObjectNotFound(404, "NotFound", LEASE)
            self._check(self.lease, sent)
        metadata = {**sent["metadata"], "resourceVersion": self.next_version()}
        self.lease = {**sent, "metadata": metadata}
        return self.lease


class Line(FakeApi):
    """One replica's way to the API server: an ``Api``."""

    def __init__(self, weather: Weather, replica: str) -> None:
        self._weather = weather
        self._replica = replica
        self.is_cut = False
        self.thaws_at = 0.0
        self.dies_with = ""  # "arrived", "lost": what becomes of the scale write it dies in
        self.freezes_at = ""  # the subresource whose next write it freezes in ...
        self.frozen_s = 90.0  # ... for so long
        self.is_leaseless = False  # no request for the Lease comes through

    async def reply(self, sent: Sent) -> Response:
        """``guard`` runs after every wait, right before it goes out."""
        try:
            async with asyncio.timeout(sent.timeout_s):
                return await self._send(sent.method, sent.path, sent.object, sent.guard)
        except TimeoutError:
            raise ApiUnreachable("the deadline passed", is_timeout=True) from None

    async def _send(
        self, method: Method, path: str, sent: Any, guard: Callable[[], None] | None
    ) -> Response:
        weather, draw = self._weather, self._weather.draw
        loop = asyncio.get_running_loop()
        await asyncio.sleep(draw.choice((0.0, 0.0, 0.01, 0.4)))
        if self.freezes_at and path.endswith(self.freezes_at) and method != "GET":
            self.freezes_at, self.thaws_at = "", loop.time() + self.frozen_s
        await asyncio.sleep(max(self.thaws_at - loop.time(), 0.0))
        if guard is not None:
            guard()
        await asyncio.sleep(draw.choice((0.001, 0.001, 0.05, 0.8)))
        if weather.slow_s:
            await asyncio.sleep(draw.uniform(0.0, weather.slow_s))
        if self.dies_with and path.endswith("/scale") and method != "GET":
            if self.dies_with == "arrived":
                weather.take(method, path, sent, self._replica)
            self.is_cut = True
        if self.is_leaseless and "/leases" in path:
            raise ApiUnreachable("no way to the Lease")
        if self.is_cut:
            await asyncio.sleep(_FOREVER_S)
        fate = weather.fate(method, path)
        if isinstance(fate, Exception):
            weather.judge.refused += 1
            if "configmaps" in path:
                # What is neither stored nor in the status any more, nobody can know.
                for name in weather.judge.specs:
                    weather.judge.unsettle(name)
            raise fate
        answer = weather.take(method, path, sent, self._replica)
        if fate == "lost":
            raise ApiUnreachable("connection reset after the request was sent")
        return ok(answer)


__all__ = ["NS", "Given", "Judge", "Line", "Weather"]
