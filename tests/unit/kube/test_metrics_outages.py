"""After an outage of a metrics API its answers tell of it, as those of our own feed do."""

import tracemalloc

import pytest

from podscale.core.metrics import (
    CLUSTER_APIS,
    Answer,
    ExternalMetric,
    ExternalSamples,
    Failure,
    ObjectMetric,
    PodMetric,
    PodResource,
    Question,
    SampleGap,
)
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.metrics_apis.provider import ApiProvider
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"
QUEUE, OTHER = ExternalMetric("shop", "queue"), ExternalMetric("shop", "other")
RATE, HITS = PodMetric("shop", "rate", ""), ObjectMetric("shop", "services", "web", "hits")
CPU = PodResource("shop", "", "cpu")


def described(value: str, **more: object) -> dict:
    return {"describedObject": {"kind": "Pod", "name": "web-0"}, "value": value, **more}


class Apis:
    """The metrics APIs of a cluster at a time of ours, and which of them are down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.down: tuple[str, ...] = ()
        self.refusal = Refusal(503, "ServiceUnavailable")
        self.cluster = LittleCluster()
        self.cluster.fault = self._fault
        self.cluster.answers |= {
            f"{EXTERNAL}/queue": {"items": [{"value": "7"}]},
            f"{EXTERNAL}/other": {"items": [{"value": "7"}]},
            f"{CUSTOM}/pods/*/rate": {"items": [described("5", windowSeconds=120)]},
            f"{CUSTOM}/services/web/hits": {"items": [described("5", windowSeconds=120)]},
            "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods": {"items": [{
                "metadata": {"name": "web-0", "namespace": "shop"}, "window": "15s",
                "containers": [{"name": "app", "usage": {"cpu": "1"}}],
            }]},
        }  # fmt: skip
        api = MemoryApi(self.cluster)
        self.provider = ApiProvider(api, ApiDiscovery(api), wall=lambda: self.now)

    def _fault(self, _method: str, path: str, _query: object) -> Refusal | None:
        return self.refusal if any(each in path for each in self.down) else None

    async def at(self, seconds: float, *questions: Question) -> list[Answer]:
        """Ask ``seconds`` after the start."""
        self.now = 1000.0 + seconds
        return list(await self.provider.answer(questions))

    async def outage(self, *questions: Question, down: str, until_s: float) -> list[Answer]:
        """Ask every 10 s while what is ``down`` fails; return the first answers after that."""
        await self.at(0, *questions)
        self.down = (down,)
        for seconds in range(10, int(until_s), 10):
            await self.at(seconds, *questions)
        self.down = ()
        return await self.at(until_s, *questions)


@pytest.mark.parametrize(("question", "api", "window_s"), [
    pytest.param(RATE, "custom.", 120.0, id="the-window-that-the-answer-tells"),
    pytest.param(HITS, "custom.", 120.0, id="of-an-object"),
    pytest.param(CPU, "metrics.k8s.io/v1beta1/namespaces/shop/pods", 15.0, id="metrics-server"),
    pytest.param(QUEUE, "external.", 300.0, id="five-minutes-where-it-tells-none"),
])  # fmt: skip
async def test_after_an_outage_a_window_that_reaches_there_is_told(question, api, window_s):
    apis = Apis()
    (answer,) = await apis.outage(question, down=api, until_s=70)
    whole_s = 1070.0 + 1.25 * window_s
    assert answer.gap == SampleGap(1010.0, 1070.0, window_s, whole_s, CLUSTER_APIS)
    (later,) = await apis.at(whole_s - 1000.0, question)
    assert later.gap is None


async def test_an_outage_lasts_15_s():
    (short,) = await Apis().outage(QUEUE, down="external.", until_s=24)
    assert short.gap is None
    (long,) = await Apis().outage(QUEUE, down="external.", until_s=25)
    assert long.gap is not None


async def test_what_fails_between_others_that_are_answered_is_no_outage():
    queue, other = await Apis().outage(QUEUE, OTHER, down="external.metrics.k8s.io/v1beta1"
                                       "/namespaces/shop/queue", until_s=70)  # fmt: skip
    assert (queue.gap, other.gap) == (None, None)


@pytest.mark.parametrize("broken_first", [True, False])
async def test_what_always_fails_makes_no_outage_between_the_answers_to_others(broken_first):
    # Each is asked every 30 s, in a batch of its own.
    apis = Apis()
    apis.down = ("/other",)
    for seconds in range(30, 300, 30):
        if broken_first:
            await apis.at(seconds, OTHER)
        (answer,) = await apis.at(seconds + 1, QUEUE)
        if not broken_first:
            await apis.at(seconds + 2, OTHER)
    assert isinstance(answer, ExternalSamples)
    assert answer.gap is None or answer.gap.until_s < 1070.0  # the first time nobody knows better
    apis.down = ("external.",)
    await apis.at(301, QUEUE)
    apis.down = ()
    (answer,) = await apis.at(331, QUEUE)
    assert (answer.gap.since_s, answer.gap.until_s) == (1301.0, 1331.0)


async def test_each_api_has_outages_of_its_own():
    cpu, rate = await Apis().outage(CPU, RATE, down="custom.", until_s=70)
    assert cpu.gap is None
    assert rate.gap is not None


async def test_lists_with_nothing_in_them_end_no_outage():
    # What prometheus-adapter answers while a Prometheus that is back has one sample of each series.
    apis = Apis()
    apis.down = ("external.",)
    await apis.at(0, QUEUE)
    await apis.at(20, QUEUE)
    apis.down = ()
    full, apis.cluster.answers[f"{EXTERNAL}/queue"] = (
        apis.cluster.answers[f"{EXTERNAL}/queue"], {"items": []},
    )  # fmt: skip
    (empty,) = await apis.at(30, QUEUE)
    assert isinstance(empty, Failure)
    apis.cluster.answers[f"{EXTERNAL}/queue"] = full
    (answer,) = await apis.at(60, QUEUE)
    assert isinstance(answer, ExternalSamples)
    assert answer.gap == SampleGap(1000.0, 1060.0, 300.0, 1435.0, CLUSTER_APIS)


async def test_a_start_has_seen_no_outage():
    (answer,) = await Apis().at(0, QUEUE)
    assert answer.gap is None


async def test_questions_that_nobody_asked_before_and_that_fail_do_not_stay() -> None:
    apis = Apis()
    apis.cluster.fault = lambda *_: Refusal(503, "ServiceUnavailable")
    tracemalloc.start()
    for number in range(20):  # one HPA, written anew for each pass
        selectors = (f"a={number:05}{place:05}" * 5_000 for place in range(40))
        await apis.at(number, *[ExternalMetric("shop", "nobody", each) for each in selectors])
        apis.cluster.requests.clear()
    filled = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert filled < 24 * 2**20
