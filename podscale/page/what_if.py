"""*What if* of one workload: what other targets would have done with the load that was drawn.

``podscale replay`` says so in a child process, one at a time and at the lowest priority: a replay
must not hold up who decides. It is given what the page shows and nothing else, so that whoever
may read the page learns no more by it, and asks neither the cluster nor Prometheus: the load as a
share of its target, whatever the metric is. Times the size of then it is the load in pods at
today's target: one metric whose target is 1.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import numpy as np
import structlog
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA, Rules
from podscale.page.board import PointRing

_log = structlog.get_logger()

SWEEP = "target=600m..1400m:100m"  # of today's
FEWEST_S = 120.0  # of load, until there is something to replay
MOST_PASSES = 5760  # the last ones, a day at 15 s: the ring keeps its first point for ever
_MOST_WAITING = 8
_MOST_KEPT = 32
_KEPT_S = 60.0
_DEADLINE_S = 60.0
_NICE = 19

Id = tuple[str, str, str]


class ReplayInputs(Struct, frozen=True):
    """What one replay is given."""

    trace: str  # CSV
    spec: bytes  # JSON
    replicas: int  # at the beginning


class WhatIfAnswer(Struct, frozen=True, rename="camel"):
    """How far it is; with ``done`` the report of ``podscale replay -o json``."""

    state: str  # running | done | failed
    message: str = ""
    report: msgspec.Raw = msgspec.Raw(b"null")
    made_at: float = 0.0


class WhatIf:
    """Replays that somebody asked for, and what came of the last ones."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._found: dict[Id, WhatIfAnswer] = {}
        self._waiting: asyncio.Queue[tuple[Id, ReplayInputs]] = asyncio.Queue(_MOST_WAITING)

    def answer(self, id_: Id, inputs: Callable[[], ReplayInputs | None]) -> WhatIfAnswer:
        """Return what is known, and see to it that there is something to be known soon."""
        found = self._found.get(id_)
        if found is not None and (found.state == "running" or
                                  0.0 <= self._wall() - found.made_at < _KEPT_S):  # fmt: skip
            return found
        if self._waiting.full():
            return WhatIfAnswer("running", "others are before it")
        given = inputs()
        if given is None:
            return WhatIfAnswer("failed", "it has been watched for less than two minutes: wait")
        self._waiting.put_nowait((id_, given))
        running = self._found[id_] = WhatIfAnswer("running")
        return running

    async def run(self) -> None:
        """Replay one after the other, for ever."""
        while True:
            id_, given = await self._waiting.get()
            try:
                found = await self._replayed(given)
            except Exception as error:  # noqa: BLE001 - what is only tried must not end the process
                _log.exception("page: replay failed")
                found = WhatIfAnswer("failed", str(error))
            self._found.pop(id_, None)
            self._found[id_] = structs.replace(found, made_at=self._wall())
            while len(self._found) > _MOST_KEPT + _MOST_WAITING:
                del self._found[next(iter(self._found))]

    async def _replayed(self, given: ReplayInputs) -> WhatIfAnswer:
        try:
            with tempfile.TemporaryFile(buffering=0) as spec:
                spec.write(given.spec)
                spec.seek(0)
                fd = spec.fileno()
                words = ["replay", "--trace", "-", "--hpa", f"/dev/fd/{fd}", "--sweep", SWEEP,
                         "--replicas", str(given.replicas), "--workers", "1",
                         "-o", "json"]  # fmt: skip
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "podscale", *words, pass_fds=[fd],
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
        except OSError as error:
            return WhatIfAnswer("failed", f"no child process: {error.strerror}")
        try:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)
            async with asyncio.timeout(_DEADLINE_S):
                out, err = await child.communicate(given.trace.encode())
        except TimeoutError:
            return WhatIfAnswer("failed", f"it took more than {_DEADLINE_S:.0f} s")
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            lines = err.decode(errors="replace").strip().splitlines() or ["it ended without a word"]
            return WhatIfAnswer("failed", lines[-1])
        return WhatIfAnswer("done", report=msgspec.Raw(out))


def load_csv(ring: PointRing, most: int, period_s: float) -> tuple[str, int] | None:
    """Return the load as CSV, a line for each period, and the replicas at its beginning; None: it
    has not been watched for long.

    Older points lie further apart, and hold until the next one. At ``most`` pods the load is
    hidden, and left out.
    """
    times = ring.times()
    if len(times) < 2 or times[-1] - times[0] < FEWEST_S:
        return None
    load, target, replicas = ring.columns()
    with np.errstate(divide="ignore", invalid="ignore"):
        pods = load / target * replicas
    pods[(replicas >= most) & (load > target)] = np.nan
    start = max(times[0], times[-1] - (MOST_PASSES - 1) * period_s)
    grid = np.arange(start, times[-1] + period_s, period_s)
    rows = np.searchsorted(times, grid, side="right") - 1
    lines = [
        f"{at:.3f},{value:.6g}" if np.isfinite(value) else f"{at:.3f},"
        for at, value in zip(grid.tolist(), pods[rows].tolist(), strict=True)
    ]
    first = replicas[rows[0]]
    return "\n".join(["time,load", *lines, ""]), int(first) if first >= 1 else 1


def replayed_spec(hpa: HPA) -> Mapping[str, object]:
    """Return the object to replay: bounds and behavior of ``hpa``, one metric with target 1."""
    metric = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    target = hpa.target
    found: dict[str, object] = {
        "scaleTargetRef": {
            "apiVersion": target.api_version or "apps/v1", "kind": target.kind, "name": target.name,
        },
        "minReplicas": max(hpa.min_replicas, 1),
        "maxReplicas": hpa.max_replicas,
        "metrics": [{"type": "Pods", "pods": metric}],
    }  # fmt: skip
    if hpa.behavior is not None:
        found["behavior"] = {
            "scaleUp": _rules(hpa.behavior.up),
            "scaleDown": _rules(hpa.behavior.down),
        }
    metadata = {"name": hpa.name, "namespace": hpa.namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": metadata, "spec": found}  # fmt: skip


def _rules(rules: Rules) -> Mapping[str, object]:
    found: dict[str, object] = {
        "selectPolicy": rules.select,
        "policies": [
            {"type": each.type, "value": each.value, "periodSeconds": each.period_seconds}
            for each in rules.policies
        ],
    }
    if rules.window_s is not None:
        found["stabilizationWindowSeconds"] = rules.window_s
    if rules.tolerance is not None:
        found["tolerance"] = f"{rules.tolerance:g}"
    return found
