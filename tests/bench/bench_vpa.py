"""The recommender's whole pass over a large cluster, the webhook under load, and history.

The pass runs from the stores to the bodies of its requests: everything but sockets. The
webhook and its constant answer are the same server, by turns. History of 1,000 containers
is read from a real Prometheus by the process that answers the webhook.

The steady state is that of a recommender that has run for days: two of them in quarters of
an hour, so that windows end at all times of the day; one minute by minute, as it is live,
so that the peaks of all open windows are those of so many samples; and an hour of whole
passes, after which checkpoints and statuses are of all ages. Measured is the next hour,
because within it everything has to be written that grows old. The yardstick of a pass is what
Go takes for the histograms of as many containers, and nothing else, by turns of twelve passes.
"""

import asyncio
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median

from prometheus_client import CollectorRegistry

from podscale.process.compose import relax
from tests.bench import vpa_admission, vpa_past
from tests.bench.figures import Figures, resident_mb
from tests.bench.vpa_cast import Cast
from tests.bench.yardstick import histograms_s
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.selfmetrics import RecommenderMetrics

VPAS, PODS = 10_000, 10
QUARTERS, QUARTER_S = 2 * 96, 900.0
MINUTES = 24 * 60
HOUR = 60  # passes
WINDOWS = 5


def main() -> int:
    """Run it; see ``tests.bench``."""
    relax()  # as the processes do
    figures = Figures("bench-vpa, processes")
    asyncio.run(whole_pass(figures))
    gc.unfreeze()
    gc.collect()
    with tempfile.TemporaryDirectory() as scratch:
        vpa_admission.measure(figures, Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        vpa_past.measure(figures, Path(scratch))
    return figures.finish()


async def whole_pass(figures: Figures) -> None:
    """Measure an hour of passes over noisy usage."""
    cast = Cast(VPAS, PODS)
    metrics = RecommenderMetrics(CollectorRegistry())
    recommender = Recommender(
        cast.api, cast.stores, cast.evictions, cast, Options(sample_minutes=1.0), metrics,  # type: ignore[arg-type]
        wall=lambda: cast.now,
    )  # fmt: skip
    recommender._feed.start()
    await recommender._load_vpas()
    recommender._feed.load(recommender.cluster, cast.now, lambda _: True)
    for _ in range(QUARTERS):
        cast.now += QUARTER_S
        recommender.cluster.take(cast.usage(QUARTER_S), QUARTER_S / 60.0)
    # Each of these samples stands for one a minute: so much weighs what is known already.
    known = recommender.cluster.aggregates.cpu
    known.weights *= QUARTER_S / 60.0
    known.total *= QUARTER_S / 60.0
    for _ in range(MINUTES):
        cast.now += 60.0
        recommender.cluster.take(cast.usage(), 1.0)
    await _passes(recommender, cast, HOUR)
    gc.collect()
    gc.freeze()  # as the processes do after their first sync
    cast.api.counts.clear()
    windows, yard = [], []
    for _ in range(WINDOWS):
        windows.append(await _passes(recommender, cast, HOUR // WINDOWS))
        yard.append(histograms_s(2 * VPAS * PODS))
    took = [each for window in windows for each in window]
    requests = sum(cast.api.counts.values()) / HOUR / VPAS
    figures.note(f"{VPAS:,} VPAs, {VPAS * PODS:,} pods, {2 * VPAS * PODS:,} containers")
    figures.note("CPU of each pass: " + ", ".join(f"{each:.2f}" for each in took) + " s")
    figures.note(f"written in {HOUR} passes: {dict(cast.api.counts)}")
    pairs = [(fmean(window), theirs) for window, theirs in zip(windows, yard, strict=True)]
    shown = ", ".join(f"{ours:.2f} / {theirs:.2f}" for ours, theirs in pairs)
    figures.note(f"a pass without I/O / Go's histograms, by turns: {shown} s")
    ratio = median(ours / theirs for ours, theirs in pairs)
    longest = max(took) / median(yard)
    # Unchanged code reads 3.5 on one machine and 5.3 on another: a change is judged by turns with
    # the commit before it.
    figures.note(f"of which the median is {ratio:.2f}, the longest {longest:.2f}")
    figures.at_most("API requests for each VPA and pass", requests, 0.3)
    figures.at_most("resident GB", resident_mb(os.getpid()) / 1000.0, 1.5)


async def _passes(recommender: Recommender, cast: Cast, count: int) -> list[float]:
    took = []
    for _ in range(count):
        cast.now += 60.0
        began = time.process_time()
        await recommender.once()
        took.append(time.process_time() - began)
    return took


if __name__ == "__main__":
    sys.exit(main())
