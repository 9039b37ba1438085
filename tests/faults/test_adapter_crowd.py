"""Ten thousand clients at once, each with a connection of its own.

A kube-aggregator needs a handful; this is what a wrong client or an attacker brings. Every
request is answered, and connections cost memory and nothing else.
"""

import os
import threading
import time
from pathlib import Path

import pytest

from tests.bench.figures import resident_mb
from tests.bench.stage import Stage, path
from tests.bench.yardstick import load

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
CLIENTS = 2_000 if IS_SHORT else 10_000
SECONDS = 15.0 if IS_SHORT else 60.0
CONNECTION_KB = 100.0  # of TLS state and buffers, at most


class Watch:
    """How many sockets a process holds and how much memory, at most."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.files = 0
        self.memory_mb = 0.0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            files = sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir())
            self.files = max(self.files, files)
            self.memory_mb = max(self.memory_mb, resident_mb(self._pid))


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(SECONDS + 180)
def test_ten_thousand_connections_are_served_and_cost_only_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stage(tmp_path, namespaces=2, apps=1) as stage:
        before_mb = resident_mb(stage.adapter.pid)
        urls = [stage.url + path(0, 0), stage.url + "/livez"]
        with Watch(stage.adapter.pid) as watch:
            # Every client comes two or three times, so that all are there at the same time.
            rate = 2.5 * CLIENTS / SECONDS
            done = load(
                urls, tmp_path, clients=CLIENTS, seconds=SECONDS, rate=rate, token=stage.token,
                apart=True,
            )  # fmt: skip
        began = time.monotonic()
        assert len(stage.get(path(0, 0))["items"]) == 10
        after_s = time.monotonic() - began
        per_kb = (watch.memory_mb - before_mb) * 1e3 / CLIENTS
    with capsys.disabled():
        print(
            f"\ncrowd: {done['requests']} requests over {watch.files} open files, "
            f"{done['failed']} failed, p99 {done['p99_us'] / 1e3:.0f} ms; "
            f"{before_mb:.0f} MB before, {watch.memory_mb:.0f} MB at most ({per_kb:.0f} KB each); "
            f"the next answer took {after_s * 1e3:.0f} ms"
        )
    assert done["failures"] == []
    assert watch.files >= CLIENTS
    assert per_kb <= CONNECTION_KB
