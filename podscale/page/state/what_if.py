"""*What if* of one workload: what other targets would have done with the load that was drawn.

``podscale replay`` says so in a child process, one at a time and at the lowest priority: a replay
must not hold up who decides. It is given what the page shows and nothing else, so that whoever
may read the page learns no more by it, and asks neither the cluster nor Prometheus.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog
from msgspec import Struct

from podscale.page.state.drawn_load import SWEEP

_log = structlog.get_logger()

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
        given = inputs()
        if given is None:
            return WhatIfAnswer("failed", "it has been watched for less than two minutes: wait")
        if self._waiting.full():
            return WhatIfAnswer("running", "others are before it")
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
                found = WhatIfAnswer("failed", str(error), made_at=self._wall())
            self._found.pop(id_, None)
            self._found[id_] = found
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
            return WhatIfAnswer(
                "failed", f"no child process: {error.strerror}", made_at=self._wall()
            )
        try:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICE)
            async with asyncio.timeout(_DEADLINE_S):
                out, err = await child.communicate(given.trace.encode())
        except TimeoutError:
            text = f"it took more than {_DEADLINE_S:.0f} s"
            return WhatIfAnswer("failed", text, made_at=self._wall())
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            lines = err.decode(errors="replace").strip().splitlines() or ["it ended without a word"]
            return WhatIfAnswer("failed", lines[-1], made_at=self._wall())
        return WhatIfAnswer("done", report=msgspec.Raw(out), made_at=self._wall())
