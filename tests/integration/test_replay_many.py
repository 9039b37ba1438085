"""Many HPAs at once: the same bytes whoever does the work, a failure is one line."""

import asyncio
import json
import re
import sys

import aiohttp
import pytest

from podscale.cli.replay.run import one_report
from podscale.replay.inputs import ReplayError
from podscale.replay.parallel import over_cores, over_dask
from tests.integration.test_demo import demo, end, shown_until
from tests.kit.many_replays import (
    MOST_CPU,
    SHARED,
    SMALLEST_SHARE,
    shown,
    subjects,
    two_dask_workers,
)
from tests.tools.required import require_package
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.simulate.loads import pods_metric


def test_the_bytes_do_not_depend_on_the_number_of_workers():
    alone = shown(one_report(SHARED, each) for each in subjects())
    assert "shop/web-5: Prometheus has no sample" in alone
    assert alone.count("shop/web-6") > 3
    for workers, start in ((1, "fork"), (2, "fork"), (3, "spawn")):
        assert shown(over_cores(one_report, SHARED, subjects(), workers, start)) == alone


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.needs("distributed")
def test_two_dask_workers_share_the_work_and_one_may_die():
    require_package("distributed")
    found = two_dask_workers()
    print(f"two workers: {found.cpu:.2f} of one's CPU, the smaller share {found.smaller_share:.0%}")
    assert found.is_same
    assert found.cpu <= MOST_CPU
    assert found.smaller_share >= SMALLEST_SHARE


@pytest.mark.needs("distributed")
def test_no_scheduler_is_one_sentence():
    with pytest.raises(ReplayError, match="no scheduler answers"):
        list(over_dask(one_report, SHARED, [], "tcp://127.0.0.1:1"))


@pytest.mark.timeout(180)
async def test_all_hpas_of_a_cluster_and_one_that_has_no_rule(tmp_path):
    running = await demo(tmp_path, "--speed", "20")
    try:
        text = await shown_until(running, "the size changes from 2 to ")
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
