"""CPU of a ``*`` request of ten pods, beside a Go server that sends the same bytes.

Unchanged: one path again and again. Cold: 2,500 paths in turn at 500 a second, so that each
request meets a snapshot it has not been answered from, and carries its share of reading it
(the age queries too). Then 1,000 paths at 2,000 a second. Both servers get the same rate, by
turns: a saturated Go server never sleeps, and ours on one thread leaves its clients asleep, so
that a closed loop compares wake-ups and not requests. Then latency while answers of 100,000
series, each another query, are decoded and written in the same process without a pause between
them. Windows with and without them take turns, and the median of each counts: what else the
machine does in a second then meets both alike.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from tests.bench.figures import Figures, cpu_s
from tests.bench.stage import Stage, path
from tests.bench.yardstick import GoServer, load

SECONDS = 10.0  # two lives of a snapshot, so that each window has its share of reading them
WINDOWS, WINDOW_S = 12, 5.0  # 1,000 requests each
TURNS = 4
TURN_S = 4.0
UNCHANGED_RATE, COLD_RATE, RATE = 1000.0, 500.0, 2000.0
NAMESPACES, APPS = 100, 25
BALLAST = 100_000


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("bench-adapter, requests")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with Stage(directory, namespaces=NAMESPACES, apps=APPS, ballast=BALLAST) as stage:
            stage.quiet()
            with GoServer(directory, stage.body(path(0, 0))) as go:
                _requests(figures, stage, go, directory)
                _rate(figures, stage, go, directory)
                _beside(figures, stage, directory)
    return figures.finish()


def _requests(figures: Figures, stage: Stage, go: GoServer, directory: Path) -> None:
    one = [stage.url + path(0, 0)]
    yard, ours = _by_turns(stage, go, one, UNCHANGED_RATE, directory)
    figures.note(f"unchanged, {UNCHANGED_RATE:g}/s: {ours:.0f} us a request, Go {yard:.0f} us")
    figures.at_most("CPU per request, unchanged snapshot, ours / Go", ours / yard, 1.7)
    many = _everything(stage)
    load(many, directory, clients=4, seconds=6.0, rate=COLD_RATE, token=stage.token)
    yard, ours = _by_turns(stage, go, many, COLD_RATE, directory)
    figures.note(f"cold, {COLD_RATE:g}/s: {ours:.0f} us a request, Go {yard:.0f} us")
    figures.at_most("CPU per request, cold, ours / Go", ours / yard, 3.0)


def _by_turns(
    stage: Stage,
    go: GoServer,
    urls: list[str],
    rate: float,
    directory: Path,
    clients: int = 4,
    seconds: float = TURN_S,
) -> tuple[float, float]:
    """Return CPU microseconds a request: Go's, ours."""
    spent = {go.server.pid: 0.0, stage.adapter.pid: 0.0}
    done = dict.fromkeys(spent, 0)
    share = len(urls) // TURNS
    for turn in range(-1, TURNS):  # the first one warms up and does not count
        # Another part of the paths each turn: none is asked again within a snapshot's life.
        mine = urls if share == 0 else urls[turn * share :] + urls[: turn * share]
        for pid, asked, token in (
            (go.server.pid, [go.url], ""),
            (stage.adapter.pid, mine, stage.token),
        ):
            before = cpu_s(pid)
            got = load(asked, directory, clients=clients, seconds=seconds, rate=rate, token=token)
            if got["failed"]:
                raise RuntimeError(f"{got['failed']} requests failed: {got['failures'][0]}")
            if turn >= 0:
                spent[pid] += cpu_s(pid) - before
                done[pid] += got["requests"]
    yard, ours = (spent[pid] / done[pid] * 1e6 for pid in spent)
    return yard, ours


def _everything(stage: Stage) -> list[str]:
    return [stage.url + path(n, a) for a in range(APPS) for n in range(NAMESPACES)]


def _rate(figures: Figures, stage: Stage, go: GoServer, directory: Path) -> None:
    many = _everything(stage)[:1000]
    yard, ours = _by_turns(stage, go, many, RATE, directory, clients=16, seconds=SECONDS)
    figures.note(f"{RATE:g}/s: {ours * RATE / 1e6:.2f} of a core, Go {yard * RATE / 1e6:.2f}")
    figures.at_most("CPU at 2,000 requests/s, ours / Go", ours / yard, 2.5)


def _beside(figures: Figures, stage: Stage, directory: Path) -> None:
    one = [stage.url + path(0, 0)]
    idle: list[int] = []
    busy: list[int] = []
    decoded, took_s = 0, 0.0
    where = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/ballast"
    series = stage.body(where).count(b'"metricName"')
    if series != BALLAST:
        raise RuntimeError(f"{series} series where {BALLAST} are exported")
    for turn in range(WINDOWS):
        idle.append(_p99(stage, one, directory))
        # Another selector each time: another query, so that nothing comes from a snapshot. The
        # client only counts and drops the bytes: it must not take the processor from us.
        beside = directory / f"beside-{turn}"
        beside.mkdir()
        urls = [f"{stage.url}{where}?labelSelector=id%21%3Dx{turn}-{n}" for n in range(100)]
        with ThreadPoolExecutor(1) as pool:
            load_s = WINDOW_S + 1.0  # it begins before and ends after
            done = pool.submit(load, urls, beside, clients=1, seconds=load_s, token=stage.token)
            time.sleep(0.5)
            busy.append(_p99(stage, one, directory))
            found = done.result()
        if found["failed"]:
            raise RuntimeError(f"an answer beside failed: {found['failures'][0]}")
        decoded += found["requests"]
        took_s += found["seconds"]
    figures.note(f"p99 idle {idle} us, busy {busy} us")
    ratio = median(busy) / median(idle)
    detail = (
        f"({decoded} answers of {series} series, {decoded * series / took_s:.0f} series/s decoded, "
        "written and sent beside it)"
    )
    figures.at_most("p99 while 100,000 series are decoded / idle", ratio, 2.0, detail)


def _p99(stage: Stage, urls: list[str], directory: Path) -> int:
    done = load(urls, directory, clients=4, seconds=WINDOW_S, rate=200.0, token=stage.token)
    return int(done["p99_us"])


if __name__ == "__main__":
    sys.exit(main())
