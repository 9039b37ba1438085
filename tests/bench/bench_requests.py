"""CPU of a ``*`` request of ten pods, beside a Go server that sends the same bytes.

Unchanged: one path again and again within the life of a snapshot. Cold: a thousand paths
in turn, each of them asked once per snapshot. Then 2,000 requests a second, and latency
while 100,000 series are decoded in the same process.
"""

import sys
import tempfile
import threading
from pathlib import Path

from tests.bench.figures import Figures, cpu_s
from tests.bench.stage import Stage, path
from tests.bench.yardstick import load, program
from tests.tools.process import LOOPBACK, Program, free_port

SECONDS = 8.0
BALLAST = 100_000


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("bench-adapter, requests")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with Stage(directory, namespaces=100, apps=10, ballast=BALLAST) as stage:
            stage.quiet()
            with _go(directory, stage.body(path(0, 0))) as go:
                _requests(figures, stage, go, directory)
                _rate(figures, stage, directory)
                _beside(figures, stage, directory)
    return figures.finish()


class _go:  # noqa: N801 - used as a function
    """The Go server with our certificate and our bytes."""

    def __init__(self, directory: Path, body: bytes) -> None:
        (directory / "body.json").write_bytes(body)
        port = free_port()
        self.url = f"https://{LOOPBACK}:{port}/"
        certificate = next(directory.glob("*.crt"))
        key = next(directory.glob("*.key"))
        self.server = Program(
            "go",
            [
                program("httpyard"), "serve", "-cert", certificate, "-key", key,
                "-port", str(port), "-body", directory / "body.json",
            ],
            directory / "go.log",
        )  # fmt: skip

    def __enter__(self) -> "_go":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


def _cost(pid: int, urls: list[str], directory: Path, token: str, rate: float = 0.0) -> float:
    """Return CPU microseconds a request."""
    load(urls, directory, clients=4, seconds=1.0, rate=rate, token=token)
    before = cpu_s(pid)
    done = load(urls, directory, clients=4, seconds=SECONDS, rate=rate, token=token)
    if done["failed"]:
        print(f"   {done['failed']} of {done['requests']} requests failed", file=sys.stderr)
        return float("inf")
    return (cpu_s(pid) - before) / float(done["requests"]) * 1e6


def _requests(figures: Figures, stage: Stage, go: _go, directory: Path) -> None:
    one = [stage.url + path(0, 0)]
    many = [stage.url + path(n, a) for a in range(10) for n in range(100)]
    # The same rate for both: an idle server pays wake-ups that a saturated one does not.
    yard = _cost(go.server.pid, [go.url], directory, "")
    ours = _cost(stage.adapter.pid, one, directory, stage.token)
    figures.note(f"unchanged: {ours:.0f} us a request, Go {yard:.0f} us")
    figures.at_most("CPU per request, unchanged snapshot, ours / Go", ours / yard, 2.0)
    yard = _cost(go.server.pid, [go.url], directory, "", 200.0)
    ours = _cost(stage.adapter.pid, many, directory, stage.token, 200.0)
    figures.note(f"cold, 200/s, with its share of the queries: {ours:.0f} us, Go {yard:.0f} us")
    figures.at_most("CPU per request, cold, ours / Go", ours / yard, 3.0)


def _rate(figures: Figures, stage: Stage, directory: Path) -> None:
    many = [stage.url + path(n, a) for a in range(10) for n in range(100)]
    before = cpu_s(stage.adapter.pid)
    done = load(many, directory, clients=16, seconds=SECONDS, rate=2000.0, token=stage.token)
    cores = (cpu_s(stage.adapter.pid) - before) / float(done["seconds"])
    figures.note(f"{done['requests'] / done['seconds']:.0f} requests/s, failed {done['failed']}")
    figures.at_most("cores at 2,000 requests/s", cores, 0.35)


def _beside(figures: Figures, stage: Stage, directory: Path) -> None:
    one = [stage.url + path(0, 0)]
    idle = load(one, directory, clients=4, seconds=SECONDS, rate=200.0, token=stage.token)
    stop = threading.Event()
    decoded: list[int] = []
    where = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/ballast"

    def decode() -> None:
        while not stop.is_set():
            decoded.append(len(stage.get(where)["items"]))

    beside = threading.Thread(target=decode)
    beside.start()
    try:
        busy = load(one, directory, clients=4, seconds=SECONDS, rate=200.0, token=stage.token)
    finally:
        stop.set()
        beside.join()
    figures.note(f"{len(decoded)} answers of {max(decoded)} series beside it")
    figures.note(f"p99 idle {idle['p99_us']} us, busy {busy['p99_us']} us")
    figures.at_most(
        "p99 while 100,000 series are decoded / idle", busy["p99_us"] / idle["p99_us"], 2.0
    )


if __name__ == "__main__":
    sys.exit(main())
