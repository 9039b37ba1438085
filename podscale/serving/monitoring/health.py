"""``/healthz``, ``/livez``, ``/readyz``: named checks that the parts register, and loops that hang.

Liveness holds only what a restart would mend: a loop without deadlines that is stuck by a defect.
Nothing that depends on Prometheus or the API server belongs there. Texts follow k8s.io/apiserver
``pkg/server/healthz``, except that a failed check says why: its note is written for everybody,
since these paths are open to anonymous callers.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from podscale.core.times.rfc3339 import rfc3339

Endpoint = Literal["healthz", "livez", "readyz"]
ENDPOINTS: tuple[Endpoint, ...] = ("healthz", "livez", "readyz")


class HealthVerdict(Struct, frozen=True):
    """The state of one check. The note is public: no addresses, no names of secrets."""

    is_ok: bool = True
    note: str = ""


OK = HealthVerdict()
Check = Callable[[], HealthVerdict]


class HealthReport(Struct, frozen=True):
    """The answer of a health endpoint, always text/plain."""

    status: int
    text: str


class Health:
    """The checks of one process. Checks are cheap and synchronous: they read facts."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {"ping": lambda: OK}
        self._ready: dict[str, Check] = {"ping": lambda: OK}

    def add_readiness(self, name: str, check: Check) -> None:
        """Make ``/readyz`` depend on ``check``, also reachable as ``/readyz/<name>``."""
        self._ready[name] = check

    def add_liveness(self, name: str, check: Check) -> None:
        """Make ``/livez`` and ``/healthz`` depend on ``check``: a restart has to mend it."""
        self._live[name] = check

    def paths(self) -> Iterator[str]:
        """Yield every path served here, for the index."""
        for endpoint in ENDPOINTS:
            yield f"/{endpoint}"
            for name in self._checks(endpoint):
                yield f"/{endpoint}/{name}"

    def report(
        self, endpoint: Endpoint, *, is_verbose: bool = False, excluded: Sequence[str] = ()
    ) -> HealthReport:
        """Return the state of one endpoint, leaving out the checks named in ``excluded``."""
        lines: list[str] = []
        failed = False
        checks = self._checks(endpoint)
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            verdict = _run(check)
            failed |= not verdict.is_ok
            note = f": {verdict.note}" if verdict.note else ""
            lines.append(f"[+]{name} ok{note}" if verdict.is_ok else f"[-]{name} failed{note}")
        lines += [
            f'warn: some health checks cannot be excluded: no matches for "{name}"'
            for name in excluded
            if name not in checks
        ]
        if failed:
            return HealthReport(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if is_verbose:
            return HealthReport(200, "\n".join([*lines, f"{endpoint} check passed", ""]))
        return HealthReport(200, "ok")

    def single(self, endpoint: Endpoint, name: str) -> HealthReport | None:
        """Return the state of one check; None when there is none of that name."""
        check = self._checks(endpoint).get(name)
        if check is None:
            return None
        verdict = _run(check)
        if verdict.is_ok:
            return HealthReport(200, "ok")
        return HealthReport(500, f"internal server error: {verdict.note or 'check failed'}\n")

    def _checks(self, endpoint: Endpoint) -> Mapping[str, Check]:
        return self._ready if endpoint == "readyz" else self._live


def _run(check: Check) -> HealthVerdict:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a broken check is a failed check, not a 500 page
        return HealthVerdict(False, f"check raised {type(error).__name__}")


class Heartbeat:
    """A loop that has to come round again and again. A ``Check``."""

    def __init__(self, allowed_s: float) -> None:
        """``allowed_s`` is the longest time from one round to the next."""
        self._allowed_s = allowed_s
        self._last: float | None = None  # None: nobody runs it now

    def beat(self) -> None:
        self._last = time.monotonic()

    def rest(self) -> None:
        """Expect nothing until the next ``beat``: another replica leads, or it has ended."""
        self._last = None

    @property
    def is_expected(self) -> bool:
        """Whether somebody runs the loop now."""
        return self._last is not None

    def __call__(self) -> HealthVerdict:
        """Return whether it came round in time, and since when it did not."""
        if self._last is None:
            return OK
        return _judged(time.monotonic() - self._last, self._allowed_s)


class OverlappingRounds:
    """Rounds that may overlap, of which none may take too long. A ``Check``."""

    def __init__(self, allowed_s: float) -> None:
        """``allowed_s`` is the longest time that a round takes when everything hangs."""
        self._allowed_s = allowed_s
        self._began: dict[object, float] = {}  # oldest first

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a round while the block runs."""
        this = object()
        self._began[this] = time.monotonic()
        try:
            yield
        finally:
            del self._began[this]

    def __call__(self) -> HealthVerdict:
        """Return whether the oldest round may still be under way, and since when it is not."""
        oldest = next(iter(self._began.values()), None)
        if oldest is None:
            return OK
        return _judged(time.monotonic() - oldest, self._allowed_s)


def _judged(age_s: float, allowed_s: float) -> HealthVerdict:
    if age_s <= allowed_s:
        return OK
    since = rfc3339(time.time() - age_s)
    return HealthVerdict(
        False, f"stuck since {since}: {age_s:.0f} s, where {allowed_s:.0f} are allowed"
    )
