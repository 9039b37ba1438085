"""HPAs of which every tenth has a VPA, held by its anchor, against the same without VPAs.

The world of ``bench_hpa``, in which VPAs come and go: ``podscale hpa`` is one process, measured
with them and without them by turns. ``PODSCALE_BENCH_HPAS`` sets another number than 10,000.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import aiohttp

from tests.bench.bench_hpa import PERIOD_S, Stage
from tests.bench.figures import Figures
from tests.bench.hpa_cluster import sized
from tests.bench.periods import measure

WINDOWS = 5  # with VPAs, and as many without
ROUNDS = 4  # in each
SETTLE_ROUNDS = 3  # until every HPA that changed has a status that says so


async def _held(stage: Stage) -> int:
    """Return how many HPAs say that an anchor holds them."""
    api = stage.cluster.log.read_text().splitlines()[0]
    url = f"{api}/apis/autoscaling/v2/horizontalpodautoscalers"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = await answer.json()
    return sum(
        (each["type"], each["status"]) == ("Coordinated", "True")
        for item in found["items"]
        for each in item.get("status", {}).get("conditions", ())
    )


def _window(stage: Stage) -> float:
    time.sleep(SETTLE_ROUNDS * PERIOD_S)
    (period,) = measure({"hpa": stage.hpa.pid}, 1, ROUNDS * PERIOD_S)
    return period.used["hpa"]


def main() -> int:
    hpas = int(os.environ.get("PODSCALE_BENCH_HPAS", "10000"))
    figures = Figures("hpa with vpas")
    with tempfile.TemporaryDirectory() as scratch:
        vpas = Path(scratch) / "vpas"
        with Stage(Path(scratch), hpas, vpas) as stage:
            stage.warm_up()
            pairs, held = [], []
            for _ in range(WINDOWS):
                without = _window(stage)
                vpas.touch()
                pairs.append((_window(stage), without))
                held.append(asyncio.run(_held(stage)))
                vpas.unlink()
    shown = ", ".join(f"{a:.2f} / {b:.2f}" for a, b in pairs)
    figures.note(f"{hpas} HPAs, {len(sized(hpas))} with a VPA; CPU with / without: {shown} s")
    figures.at_least("HPAs held by an anchor, of those with a VPA", min(held) / len(sized(hpas)), 1)
    ratio = median(a / b for a, b in pairs)
    figures.at_most("CPU of podscale hpa with VPAs / without, median of the windows", ratio, 1.2)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
