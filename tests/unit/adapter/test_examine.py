"""The scrape interval as Prometheus's own configuration tells it, and answers that lack a part."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec import structs

from adapter.doctor.evidence import ResultOf, Series, SeriesOf, Unreachable
from adapter.doctor.examine import Examiner, longest_interval_s
from podscale.feed.http.client import PrometheusClient, SeriesAnswer
from podscale.feed.options import PrometheusOptions
from tests.unit.adapter.world import rules

GLOBAL = "global:\n  scrape_interval: 1m\n  scrape_timeout: 10s\n"
JOBS = """\
scrape_configs:
- job_name: quick
  honor_timestamps: true
  scrape_interval: 15s
  static_configs:
  - targets:
    - one:9090
- job_name: slow
  scrape_interval: 1m30s
"""


def test_the_longest_interval_of_a_job_counts():
    assert longest_interval_s(GLOBAL + JOBS) == 90.0


def test_where_nothing_is_scraped_no_interval_is_known():
    assert longest_interval_s(GLOBAL) is None
    assert longest_interval_s("") is None


@pytest.mark.parametrize(("need", "data", "expected"), [
    pytest.param(SeriesOf("load"), [], Unreachable, id="no-series-of-a-part"),
    pytest.param(SeriesOf("load"), [{"__name__": "load"}], Series, id="a-part-has-series"),
    pytest.param(ResultOf("sum(load)"), {
        "resultType": "vector", "result": [{"metric": {}, "value": [1.0, "1"]}],
    }, Unreachable, id="a-sum-over-a-part"),
])  # fmt: skip
async def test_an_answer_that_lacks_a_part_is_judged_as_the_adapter_judges_it(need, data, expected):
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"status": "success", "isPartial": True, "data": data})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    url = str(server.make_url(""))
    async with server, PrometheusClient(PrometheusOptions(url=url)) as client:
        given = await Examiner(client, 60.0).answer(need)
    assert isinstance(given, expected)
    if expected is Unreachable:
        assert "a store behind Prometheus does not answer" in given.error


class Nothing(PrometheusClient):
    """Has no series."""

    def __init__(self) -> None:
        super().__init__(PrometheusOptions(url="http://127.0.0.1:9"))

    async def series(self, *_: object) -> SeriesAnswer:
        return SeriesAnswer({}, 0, False)


async def test_of_thousands_of_rules_each_is_looked_at_once_however_many_questions_there_are():
    looks = 0

    class Counted(tuple):
        def __iter__(self):
            nonlocal looks
            looks += 1
            return super().__iter__()

    made = rules("rules:\n" + "".join(f"- seriesQuery: a_{n}\n" for n in range(50)))
    examiner = Examiner(Nothing(), 60.0, structs.replace(made, custom=Counted(made.custom)))
    for n in range(50):
        await examiner.answer(SeriesOf(f"a_{n}"))
    assert looks == 1
