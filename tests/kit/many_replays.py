"""A fleet of HPAs that is replayed by one process, by several, or by the workers of Dask."""

import importlib
import os
import time
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from click.testing import CliRunner

from hpa.simulate.workload import LoadHistory
from podscale.cli.replay.inputs import ReplayOptions, Subject
from podscale.cli.replay.run import one_report
from podscale.cli.replay.shown import print_all
from podscale.replay.inputs import ReplayError
from podscale.replay.parallel import over_dask
from podscale.replay.report import AllReplays, NamedReplay
from tests.kit.traces import crane
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.simulate.loads import pods_metric

HPAS = 12
DAYS = 1 if os.environ.get("PODSCALE_SHORT") else 14
SHARED = ReplayOptions(sweeps=("target=40..60:10",)), None
MOST_CPU, SMALLEST_SHARE = 1.2, 0.35  # of two Dask workers: in times of one's, of both


def subjects() -> Iterator[Subject | str]:
    """A fleet of ten traces, at another hour and scale each; one HPA has no history."""
    columns = [values[: DAYS * 1440] for values in crane().values()]
    for number in range(HPAS):
        if number == 5:
            yield "Prometheus has no sample of the metrics"
            continue
        values = np.roll(columns[number % len(columns)], 60 * number)
        times, nothing = 60.0 * np.arange(len(values)), np.zeros(len(values), np.bool_)
        load = LoadHistory(times, {"http_requests": values * 500 / values.max()}, nothing)
        plain = written({"maxReplicas": 30, "metrics": [pods_metric()]})
        yield Subject([("today", plain)], load, {}, (), [])


def shown(made: Iterator[object]) -> str:
    """Return all that is printed of the reports."""
    found = []
    for number, each in enumerate(made):
        report = ReplayError(each) if isinstance(each, str) else each
        found.append(NamedReplay(f"shop/web-{number}", report))
    text = []
    for form in ("json", "csv", "table"):
        runner = CliRunner()
        with runner.isolation() as streams:
            print_all(AllReplays(found, True), form)
            text.append(streams[0].getvalue().decode())
    return "".join(text)


class TwoWorkers(NamedTuple):
    """What two workers of a Dask cluster came to."""

    cpu: float  # of both, in times of what one worker alone needs
    smaller_share: float  # of it
    is_same: bool  # that one, two, and two of which one is killed print what a process alone does


def two_dask_workers() -> TwoWorkers:
    """Replay the fleet with workers of Dask, which has to be installed."""
    distributed = importlib.import_module("distributed")

    def cluster(workers: int):
        return distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        )

    alone, costs, is_same = shown(one_report(SHARED, each) for each in subjects()), {}, True
    for workers in (1, 2):
        with cluster(workers) as running, distributed.Client(running) as client:
            address = running.scheduler_address
            # What is imported for the first time is not what is measured.
            shown(over_dask(one_report, SHARED, islice(subjects(), 4), address))
            before = client.run(time.process_time)
            is_same &= shown(over_dask(one_report, SHARED, subjects(), address)) == alone
            after = client.run(time.process_time)
            costs[workers] = [after[name] - spent for name, spent in before.items()]
    with cluster(2) as running, distributed.Client(running) as client:
        pids = client.run(os.getpid)
        made = over_dask(one_report, SHARED, subjects(), running.scheduler_address)
        is_same &= shown(_killing(made, next(iter(pids.values())))) == alone
        is_same &= client.run(os.getpid) != pids  # somebody has died
    both = sum(costs[2])
    return TwoWorkers(both / sum(costs[1]), min(costs[2]) / both, is_same)


def _killing(made: Iterator[object], pid: int) -> Iterator[object]:
    # Kills a worker once three jobs are done.
    for number, each in enumerate(made):
        yield each
        if number == 2:
            os.kill(pid, 9)
