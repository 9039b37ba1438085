"""Where the demo's measurements are kept: a Prometheus that is installed, or the stand-in; and the
directory of both, locked while the demo lives, so that the next start knows a dead one's.

A demo killed with SIGKILL cannot clean up. The kernel ends its Prometheus, and its lock is gone
with it, so the next start removes the directory.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import aiohttp
from msgspec import Struct

from podscale.cli.demo.scenes import Clock
from podscale.sandbox import load
from podscale.sandbox.promql.server import PrometheusStandIn
from podscale.sandbox.server import SandboxCluster

PREFIX = "podscale-demo-"
LOCK = "lock"
_YOUNG_S = 60.0  # a directory without lock may be one that is just being made


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory of our own while the block runs; raises ``OSError``."""
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (made / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sweep() -> list[Path]:
    """Remove what dead demos of this user have left; return what was removed."""
    removed = []
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.getuid() and _is_dead(left):
                shutil.rmtree(left, ignore_errors=True)
                removed.append(left)
    return removed


def _is_dead(left: Path) -> bool:
    lock = left / LOCK
    if not lock.exists():
        return time.time() - left.stat().st_mtime > _YOUNG_S
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


HOST = "127.0.0.1"
_READY_S = 30.0
_STOP_S = 10.0
_AGAIN_S = 1.0
_LOOKS = 0.1
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: sandbox
  honor_labels: true
  static_configs: [{{targets: ["{}"]}}]
"""


class Measurements(Struct, frozen=True):
    """A running Prometheus, real or stand-in."""

    url: str
    what: str  # for people: which one it is, and why


def find() -> Path | None:
    """Return a Prometheus from PATH or from the tool cache."""
    on_path = shutil.which("prometheus")
    if on_path:
        return Path(on_path)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    cache = Path(os.environ.get("PODSCALE_TOOLS") or home / "podscale" / "tools")
    try:
        built = sorted(cache.glob("prometheus-*/prometheus"), key=lambda p: p.stat().st_mtime)
    except OSError:
        return None
    return built[-1] if built else None


@asynccontextmanager
async def measuring(
    cluster: SandboxCluster,
    directory: Path,
    clock: Clock,
    scrape_s: float,
    say: Callable[[str], None],
) -> AsyncIterator[Measurements]:
    """Keep measurements while the block runs; ``say`` tells what went wrong with a binary."""
    why = "stand-in, the clock runs faster"
    if clock.speed == 1.0:
        why = "stand-in, no prometheus on PATH"
        binary = await asyncio.to_thread(find)
        if binary is not None:
            real = _Real(binary, directory, cluster.metrics_url, say)
            try:
                problem = await real.start()
                if not problem:
                    yield Measurements(real.url, str(binary))
                    return
            finally:
                await real.stop()
            say(f"{binary} does not run here ({problem}): its stand-in measures instead")
            why = "stand-in, the prometheus found does not run"

    page, every_s = partial(load.samples, cluster.load), clock.real_s(scrape_s)
    async with PrometheusStandIn(clock, page=page, every_s=every_s) as stand_in:
        yield Measurements(stand_in.url, why)


class _Real:
    """A Prometheus as a child process, started again when somebody ends it."""

    def __init__(
        self, binary: Path, directory: Path, metrics_url: str, say: Callable[[str], None]
    ) -> None:
        self._binary = binary
        self._directory = directory
        self._metrics_url = metrics_url
        self._say = say
        self._port = 0
        self._child: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def start(self) -> str:
        """Start it; return why it does not run, empty when it does."""
        config = self._directory / "prometheus.yaml"
        target = self._metrics_url.removeprefix("http://").removesuffix("/metrics")
        config.write_text(_CONFIG.format(target))
        problem = ""
        for _ in range(3):  # somebody may take the free port before it does
            self._port = free_port()
            problem = await self._spawn()
            if not problem:
                self._watch = asyncio.create_task(self._keep(), name="prometheus")
                return ""
            await self._end()
            if "address already in use" not in problem:
                break
        return problem

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await self._end()

    async def _spawn(self) -> str:
        log = self._directory / "prometheus.log"
        with log.open("wb") as output:
            try:
                self._child = await asyncio.create_subprocess_exec(
                    str(self._binary),
                    f"--config.file={self._directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={HOST}:{self._port}",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C is ours to hand on, in order.
                    start_new_session=True,
                    preexec_fn=_ending_with_us(),
                )
            except OSError as error:
                return error.strerror or str(error)
        try:
            async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as session:
                while self._child.returncode is None:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"{self.url}/-/ready") as answer:
                            if answer.status == 200:
                                return ""
                    await asyncio.sleep(_LOOKS)
        except TimeoutError:
            return f"not ready after {_READY_S:g} s"
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return f"status {self._child.returncode}{': ' if last else ''}{''.join(last)[:200]}"

    async def _keep(self) -> None:
        while True:
            if self._child is not None:
                await self._child.wait()
            self._say("Prometheus has ended and is started again")
            await asyncio.sleep(_AGAIN_S)
            problem = await self._spawn()
            self._say(f"Prometheus does not start: {problem}" if problem else "Prometheus is back")

    async def _end(self) -> None:
        child = self._child
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        number: int = probe.getsockname()[1]
        return number


def _ending_with_us() -> Callable[[], object] | None:
    """Return what makes the child end with us, also when we are killed; Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
