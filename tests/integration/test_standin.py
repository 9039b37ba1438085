"""The demo's stand-in answers what a real Prometheus 3 answers, on random data and queries."""

import asyncio
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from podscale.sandbox.promql.series import NAME, SeriesHead, label_set
from podscale.sandbox.promql.server import PrometheusStandIn
from tests.integration.prometheus import PrometheusServer
from tests.integration.standin_queries import Question, openmetrics, question, series

SEED = 20_261_121
DATA_SETS, PAIRS = (1, 300) if os.environ.get("PODSCALE_SHORT") else (6, 2_400)


async def ask(session: aiohttp.ClientSession, url: str, asked: Question) -> tuple[int, Any]:
    if asked.end_s is None:
        path, fields = "query", {"query": asked.query, "time": repr(asked.start_s)}
    else:
        path = "query_range"
        fields = {
            "query": asked.query,
            "start": repr(asked.start_s),
            "end": repr(asked.end_s),
            "step": repr(asked.step_s),
        }
    async with session.post(f"{url}/api/v1/{path}", data=fields) as answer:
        return answer.status, await answer.json()


def points(body: Any) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
    """An answer as series and their points."""
    data = body["data"]
    if data["resultType"] == "scalar":
        return {(): [(data["result"][0], float(data["result"][1]))]}
    found = {}
    for element in data["result"]:
        key = tuple(sorted(element["metric"].items()))
        assert key not in found, f"{key} twice"
        given = element["values"] if "values" in element else [element["value"]]
        found[key] = [(at, float(value)) for at, value in given]
    return found


def is_same(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=1e-9)


def difference(ours: Any, theirs: Any) -> str:
    """What is not the same in two answers; empty when nothing."""
    mine, real = points(ours), points(theirs)
    if mine.keys() != real.keys():
        return f"series {sorted(mine.keys() - real.keys())} too many, {sorted(real.keys() - mine.keys())} missing"  # noqa: E501
    for key, expected in real.items():
        got = mine[key]
        if [at for at, _ in got] != [at for at, _ in expected]:
            return f"{key}: times {got} and {expected}"
        for (at, a), (_, b) in zip(got, expected, strict=True):
            if not is_same(a, b):
                return f"{key} at {at}: {a!r} and {b!r}"
    return ""


def head_of(data: Any) -> SeriesHead:
    head = SeriesHead(retention_ms=2**60)
    for each in data:
        labels = label_set({**each.labels, NAME: each.name})
        for time, value in each.samples:
            head.append(labels, time, value)
    return head


@pytest.mark.timeout(900)
@pytest.mark.needs("prometheus", "promtool")
async def test_random_queries_are_answered_as_by_prometheus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(SEED)
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(DATA_SETS):
        data = series(chance)
        directory = tmp_path / str(number)
        directory.mkdir()
        server = PrometheusServer(
            directory, openmetrics=openmetrics(data), evaluation_interval_s=60
        )
        await asyncio.to_thread(server.__enter__)
        try:
            async with (
                PrometheusStandIn(lambda: 0.0, head=head_of(data)) as stand_in,
                aiohttp.ClientSession() as session,
            ):
                goal = PAIRS * (number + 1) // DATA_SETS
                while tally["equal"] + len(wrong) < goal:
                    asked = question(chance)
                    status, ours = await ask(session, stand_in.url, asked)
                    real_status, theirs = await ask(session, server.url, asked)
                    if status != 200 or real_status != 200:
                        tally["refused by both"] += status == real_status
                        if status != real_status:
                            wrong.append(f"{asked}: {ours} and {theirs}")
                        continue
                    if found := difference(ours, theirs):
                        wrong.append(f"{asked}: {found}")
                    else:
                        tally["equal"] += 1
                        tally["with elements"] += bool(points(theirs))
        finally:
            await asyncio.to_thread(server.__exit__, None, None, None)
    with capsys.disabled():
        print(
            f"\nstand-in and Prometheus: {tally['equal']} random query and data pairs equal, "
            f"{tally['with elements']} of them with elements, {tally['refused by both']} more "
            f"refused by both, {len(wrong)} different, {DATA_SETS} data sets, seed {SEED}"
        )
    assert not wrong, "\n".join(wrong[:20])
    assert tally["with elements"] > tally["equal"] / 2
