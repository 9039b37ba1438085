"""The recommender's whole pass over a large cluster, the webhook under load, and history.

The pass runs from the stores to the bodies of its requests: everything but sockets. The
webhook and its constant answer are the same server, by turns. History of 1,000 containers
is read from a real Prometheus by the process that answers the webhook.
"""

import asyncio
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from tests.bench import vpa_admission, vpa_past
from tests.bench.figures import Figures, resident_mb
from tests.bench.vpa_cast import Cast
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.selfmetrics import RecommenderMetrics

VPAS, PODS = 10_000, 10
PASSES = 15
KNOWN_STEPS, KNOWN_STEP_S = 96, 900.0  # a day
MINUTES = 150  # and as much of the next one


def main() -> int:
    """Run it; see ``tests.bench``."""
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
    """Measure a quarter of an hour of passes over noisy usage, a day of which is known."""
    cast = Cast(VPAS, PODS)
    metrics = RecommenderMetrics(CollectorRegistry())
    recommender = Recommender(
        cast.api, cast.stores, cast.evictions, cast, Options(sample_minutes=1.0), metrics,  # type: ignore[arg-type]
        wall=lambda: cast.now,
    )  # fmt: skip
    recommender._feed.start()
    await recommender._load_vpas()
    recommender._feed.load(recommender.cluster, cast.now, lambda _: True)
    await _learn(recommender, cast, KNOWN_STEPS, KNOWN_STEP_S)
    # Each of these samples stands for one a minute: so much weighs what is known already.
    known = recommender.cluster.aggregates.cpu
    known.weights *= KNOWN_STEP_S / 60.0
    known.total *= KNOWN_STEP_S / 60.0
    await _learn(recommender, cast, MINUTES, 60.0)  # peaks of the day's window are old news
    await recommender.once()
    gc.collect()
    gc.freeze()  # as the processes do after their first sync
    cast.api.counts.clear()
    took: list[float] = []
    for _ in range(PASSES):
        cast.now += 60.0
        began = time.process_time()
        await recommender.once()
        took.append(time.process_time() - began)
    requests = sum(cast.api.counts.values()) / PASSES / 60.0
    figures.note(f"{VPAS:,} VPAs, {VPAS * PODS:,} pods, {2 * VPAS * PODS:,} containers")
    figures.note("CPU of each pass: " + ", ".join(f"{each:.2f}" for each in took) + " s")
    figures.note(f"written: {dict(cast.api.counts)}")
    mean, most = sum(took) / len(took), max(took)
    figures.at_most("CPU seconds of a pass without I/O", mean, 2.0, f"the longest {most:.2f} s")
    figures.at_most("API requests/s", requests, 50.0)
    figures.at_most("resident GB", resident_mb(os.getpid()) / 1000.0, 1.5)


async def _learn(recommender: Recommender, cast: Cast, steps: int, step_s: float) -> None:
    for _ in range(steps):
        cast.now += step_s
        (usage,) = await cast.answer([None])  # type: ignore[list-item]
        recommender.cluster.take(usage, step_s / 60.0)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
