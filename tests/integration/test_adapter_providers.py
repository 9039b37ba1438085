"""The two providers answer alike: in process, and through the aggregated APIs.

The scripted cluster stands for kube-aggregator: it passes what belongs to the metrics
groups on to the adapter.
"""

import math

import aiohttp
import pytest
from aiohttp import web

from podscale.core.metrics import (
    ContainerColumns,
    ContainerUsage,
    ExternalMetric,
    ExternalSamples,
    Failure,
    NoData,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
)
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.metrics_apis.provider import ApiProvider
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_wire import wire

METRIC = "http_requests_per_second"
ANSWERED = [
    PodMetric("default", METRIC, "app=web"),
    PodMetric("default", METRIC, "app=web", "method=GET"),
    PodMetric("default", "vals", "app=web"),
    ObjectMetric("default", "services", "web", METRIC),
    ObjectMetric("default", "ingresses.networking.k8s.io", "main", METRIC),
    ObjectMetric("", "namespaces", "default", METRIC),
    ObjectMetric("", "nodes", "node-a", "t_node_gauge"),
    ExternalMetric("default", "queue_consumer_lag"),
    ExternalMetric("default", "queue_depth", "name=q1"),
    PodResource("default", "app=web", "cpu", "c1"),
    PodResource("default", "app=web", "memory", "c1"),
    PodResource("default", "app=db", "cpu"),
    ContainerUsage(("default",)),
]
FAILING = [
    PodMetric("default", "nothing", "app=web"),
    PodMetric("default", METRIC, "app=nobody"),
    PodMetric("default", "vals", "app=lonely"),  # no sample
    ExternalMetric("default", "total.foo"),  # no sample
    ObjectMetric("default", "pods", "web-1", "vals"),  # NaN
    ObjectMetric("default", "pods", "db-0", "vals"),  # infinite
    ObjectMetric("default", "services", "nope", METRIC),
    ExternalMetric("default", "ext_vals"),  # of many series some are NaN and infinite
    ExternalMetric("default", "nothing"),
    PodResource("prod", "app=web", "cpu"),  # Prometheus refuses
]


class Aggregator(world.ScriptedCluster):
    """The scripted cluster with the metrics APIs behind it."""

    port = 0

    async def _handle(self, request):
        if ".metrics.k8s.io/" not in request.path and "/metrics.k8s.io/" not in request.path:
            return await super()._handle(request)
        url = f"https://127.0.0.1:{self.port}{request.path_qs}"
        async with aiohttp.ClientSession() as session:
            headers = {"Authorization": "Bearer admin", "Accept": "application/json"}
            async with session.get(url, headers=headers, ssl=False) as answer:
                body = await answer.read()
                return web.Response(
                    status=answer.status,
                    body=body,
                    content_type=answer.content_type,
                    headers={n: v for n, v in answer.headers.items() if n == "Warning"},
                )


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """The adapter behind an aggregator."""
    with wire(
        tmp_path_factory.mktemp("providers"),
        world.part_c_config(),
        lambda authorities: Aggregator(world.part_c_resources(), rows("C1"), authorities),
        world.part_c_prometheus(),
        "--coalescing=off",
        "--sample-timestamps=off",
    ) as running:
        running.cluster.port = running.port
        yield running


async def both(running, question):
    """Return the in-process answer and that of the aggregated API."""
    inside = running.run(lambda: running.served.adapter.provider.answer([question]))
    async with connect(ApiServerTarget(server=running.server), user_agent="test") as api:
        discovery = ApiDiscovery(api)
        await discovery.refresh()
        outside = await ApiProvider(api, discovery).answer([question])
    return inside[0], outside[0]


def thousandths(amount):
    """Return an amount as the wire has it; ``None`` for none."""
    return None if math.isnan(amount) else math.floor(amount * 1000) / 1000


def ceil(amount):
    """Return whole units."""
    return None if math.isnan(amount) else math.ceil(thousandths(amount))


def shown(answer):
    """Return what must be equal: values, and times as the wire has them, in whole seconds."""

    def sample(one):
        seconds = None if one.time_s is None else math.floor(one.time_s)
        return one.value_milli, seconds, one.window_s

    match answer:
        case PodSamples():
            return {name: sample(one) for name, one in answer.pods.items()}
        case ObjectSample():
            return sample(answer.sample)
        case ExternalSamples():
            return [(dict(one.labels), sample(one.sample)) for one in answer.series]
        case ContainerColumns():
            cells = zip(
                answer.namespace, answer.pod, answer.container,
                answer.cpu_cores.tolist(), answer.memory_bytes.tolist(), strict=True,
            )  # fmt: skip
            # The wire has thousandths; of memory its reader takes whole bytes, rounded up.
            return sorted((*key, thousandths(cpu), ceil(memory)) for *key, cpu, memory in cells)
    raise AssertionError(answer)


@pytest.mark.parametrize("question", ANSWERED, ids=repr)
async def test_answers_are_equal(adapter, question):
    inside, outside = await both(adapter, question)
    ours, theirs = shown(inside), shown(outside)
    # metrics.k8s.io dates a pod by the oldest of its samples, of whichever resource.
    if isinstance(question, PodResource) or inside_has_no_time(inside):
        ours, theirs = without_time(ours), without_time(theirs)
    assert ours == theirs


@pytest.mark.parametrize("question", FAILING, ids=repr)
async def test_neither_answers_what_cannot_be_answered(adapter, question):
    inside, outside = await both(adapter, question)
    assert isinstance(inside, Failure)
    assert isinstance(outside, Failure)


async def test_a_sum_of_a_part_is_refused_on_both_sides(adapter):
    inside, outside = await both(adapter, ExternalMetric("default", "ext_vals"))
    assert (type(inside), inside.reason) == (NoData, "NotANumber")
    assert (type(outside), outside.reason, outside.message) == (
        NoData,
        "NotANumber",
        inside.message,
    )


def inside_has_no_time(answer):
    """Return whether the time is not known; the wire then carries that of the query."""
    match answer:
        case PodSamples():
            return any(one.time_s is None for one in answer.pods.values())
        case ObjectSample():
            return answer.sample.time_s is None
    return False


def without_time(value):
    """Return what ``shown`` returned, without times."""
    if isinstance(value, dict):
        return {key: (one[0], one[2]) for key, one in value.items()}
    return value[0], value[2]
