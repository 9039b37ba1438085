"""Many HPAs at once: the same bytes whoever does the work, a failure is one line."""

import asyncio
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import islice

import aiohttp
import numpy as np
import pytest
from click.testing import CliRunner

from hpa.simulate.load import LoadHistory
from podscale.cli.replay.run import ReplayOptions, Subject, one_report
from podscale.cli.replay.shown import print_all
from podscale.replay.errors import ReplayError
from podscale.replay.parallel import over_cores, over_dask
from podscale.replay.report import AllReplays, NamedReplay
from tests.integration.crane import traces
from tests.integration.test_demo import demo, end, shown_until
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.simulate.loads import pods_metric

HPAS = 12
DAYS = 1 if os.environ.get("PODSCALE_SHORT") else 14
SHARED = ReplayOptions(sweeps=("target=40..60:10",)), None


def subjects() -> Iterator[Subject | str]:
    """A fleet of ten traces, at another hour and scale each; one HPA has no history."""
    columns = [np.loadtxt(file, delimiter=",", skiprows=1, usecols=1)[: DAYS * 1440]
               for file in sorted(traces().glob("*.csv"))]  # fmt: skip
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


def test_the_bytes_do_not_depend_on_the_number_of_workers():
    alone = shown(one_report(SHARED, each) for each in subjects())
    assert "shop/web-5: Prometheus has no sample" in alone
    assert alone.count("shop/web-6") > 3
    for workers, start in ((1, "fork"), (2, "fork"), (3, "spawn")):
        assert shown(over_cores(one_report, SHARED, subjects(), workers, start)) == alone


def dask():
    """Return Dask's module; where it is not installed a test skips, in CI it fails."""
    if importlib.util.find_spec("distributed") is None:
        reason = "no Dask: make setup installs it"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return importlib.import_module("distributed")


def killing(made: Iterator[object], pids: list[int]) -> Iterator[object]:
    """Kill a worker once three jobs are done."""
    for number, each in enumerate(made):
        yield each
        if number == 2:
            os.kill(pids[0], 9)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_two_dask_workers_share_the_work_and_one_may_die():
    distributed = dask()

    def cluster(workers: int):
        return distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        )

    def spent(client, before: dict[str, float]) -> list[float]:
        return [now - before[name] for name, now in client.run(time.process_time).items()]

    alone = shown(one_report(SHARED, each) for each in subjects())
    costs = {}
    for workers in (1, 2):
        with cluster(workers) as running, distributed.Client(running) as client:
            address = running.scheduler_address
            # What is imported for the first time is not what is measured.
            shown(over_dask(one_report, SHARED, islice(subjects(), 4), address))
            before = client.run(time.process_time)
            assert (
                shown(over_dask(one_report, SHARED, subjects(), running.scheduler_address)) == alone
            )
            costs[workers] = spent(client, before)
    shares = [each / sum(costs[2]) for each in costs[2]]
    ratio = sum(costs[2]) / sum(costs[1])
    print(f"two workers: {ratio:.2f} of one's CPU, shares {shares[0]:.0%} and {shares[1]:.0%}")
    assert ratio <= 1.2
    assert min(shares) >= 0.35
    with cluster(2) as running, distributed.Client(running) as client:
        pids = list(client.run(os.getpid).values())
        made = over_dask(one_report, SHARED, subjects(), running.scheduler_address)
        assert shown(killing(made, pids)) == alone
        assert list(client.run(os.getpid).values()) != pids


def test_no_scheduler_is_one_sentence():
    with pytest.raises(ReplayError, match="no scheduler answers"):
        list(over_dask(one_report, SHARED, [], "tcp://127.0.0.1:1"))


@pytest.mark.timeout(180)
async def test_all_hpas_of_a_cluster_and_one_that_has_no_rule(tmp_path):
    running = await demo(tmp_path, "--speed", "20")
    try:
        text = await shown_until(running, "The size changes from 2 to ")
        source = re.search(r"Prometheus: (http://\S+)", text)
        server = re.search(r"--server (http://\S+)", text)
        assert source, text
        assert server, text
        lost = written({"metrics": [pods_metric("50", "sold_out")]})
        lost["metadata"]["name"] = "lost"
        url = f"{server[1]}/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
        async with aiohttp.ClientSession() as session, session.post(url, json=lost) as answer:
            assert answer.status == 201, await answer.text()
        words = [sys.executable, "-m", "podscale", "replay", "hpa", "-A", "--since", "30m",
                 "--prometheus-url", source[1], "--server", server[1], "-o", "json"]  # fmt: skip
        replay = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await replay.communicate()
        assert replay.returncode == 0, err
        items = {each["hpa"]: each for each in json.loads(out)["items"]}
    finally:
        await end(running)
    assert list(items) == ["api/api", "orders/consumer", "shop/lost", "shop/web"]
    assert "sold_out" in items["shop/lost"]["failed"]
    assert items["shop/web"]["specs"][0]["podHours"] > 0
