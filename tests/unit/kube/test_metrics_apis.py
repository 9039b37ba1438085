"""The provider over the aggregated APIs: what is asked, and how answers and failures read."""

import math

import pytest
from msgspec import structs

from hpa.decide.pods import Pods, group
from hpa.decide.settings import Settings
from podscale.core.metrics import (
    ContainerColumns,
    ContainerUsage,
    ExternalMetric,
    ExternalSamples,
    NoData,
    NodeUsage,
    NodeUsageColumns,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
    Refused,
    Sample,
    Unavailable,
)
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.wire import GO_ZERO_TIME_S, parse_time
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.metrics_apis.bodies import ANSWERED_BY
from podscale.kube.metrics_apis.provider import ApiProvider
from podscale.kube.objects.pod import WirePodTemplate
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal

STAMP = "2026-11-21T10:00:00Z"
TIME = parse_time(STAMP)
RESOURCE = "/apis/metrics.k8s.io/v1beta1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


def usage(name: str, *containers: tuple[str, dict[str, str]], namespace: str = "shop") -> dict:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "timestamp": STAMP,
        "window": "1m30s",
        "containers": [{"name": c, "usage": amounts} for c, amounts in containers],
    }


def value(name: str, amount: str, **more: object) -> dict:
    return {
        "describedObject": {"kind": "Pod", "namespace": "shop", "name": name},
        "metric": {"name": "rps", "selector": None},
        "timestamp": STAMP,
        "value": amount,
        **more,
    }


@pytest.fixture
async def cluster():
    little = LittleCluster()
    little.answers["/api"] = {"kind": "APIGroupDiscoveryList", "items": []}
    little.answers["/apis"] = {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": "custom.metrics.k8s.io"},
                "versions": [{"version": "v1beta2"}, {"version": "v1beta1"}],
            }
        ],
    }
    return little


@pytest.fixture
async def provider(cluster):
    api = MemoryApi(cluster)
    discovery = ApiDiscovery(api)
    await discovery.refresh()
    cluster.requests.clear()
    return ApiProvider(api, discovery, wall=lambda: 1000.0)


async def one(provider, question):
    (answer,) = await provider.answer([question])
    return answer


async def test_usage_is_summed_and_a_pod_that_lacks_a_part_is_absent(cluster, provider):
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {
        "items": [
            usage("web-1", ("app", {"cpu": "100m"}), ("log", {"cpu": "20500u"})),
            usage("web-2", ("app", {"cpu": "1"}), ("log", {"memory": "1Mi"})),
            usage("web-3"),
        ]
    }
    answer = await one(provider, PodResource("shop", "app=web", "cpu"))
    assert answer == PodSamples({"web-1": Sample(121, TIME, 90.0)}, 1000.0)
    assert cluster.requests == [
        ("GET", f"{RESOURCE}/namespaces/shop/pods", {"labelSelector": "app=web"})
    ]


async def test_a_resource_metric_without_a_window_has_none(cluster, provider):
    written = usage("web-1", ("app", {"cpu": "100m"}))
    del written["window"]
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {"items": [written]}
    answer = await one(provider, PodResource("shop", "app=web", "cpu"))
    assert answer.pods["web-1"].window_s == 0.0


@pytest.mark.parametrize("written", [{"timestamp": None}, {}])
async def test_a_null_time_of_a_resource_sample_is_gos_zero_time(cluster, provider, written):
    item = usage("web-1", ("app", {"cpu": "100m"}))
    del item["timestamp"]
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {"items": [item | written]}
    answer = await one(provider, PodResource("shop", "app=web", "cpu"))
    assert answer.pods["web-1"].time_s == GO_ZERO_TIME_S
    assert type(answer.pods["web-1"].time_s) is float
    # A pod that started lately is not ready for it: no window lies after its readiness.
    now = 1_000_000_000.0
    pods = Pods(
        ("web-1",), bytes([PodPhase.RUNNING]), bytes([PodReadiness.TRUE]), b"\0",
        (now - 60.0,),
        (now - 50.0,), (0,), (WirePodTemplate(containers=()),),
    )  # fmt: skip
    groups = group(pods, answer.pods, "cpu", Settings(), now, now)
    assert groups.initializing == ("web-1",)


async def test_usage_that_no_int64_holds_is_the_largest(cluster, provider):
    item = usage("web-1", ("app", {"cpu": "9e18"}), ("log", {"cpu": "9e18"}))
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {"items": [item]}
    answer = await one(provider, PodResource("shop", "app=web", "cpu"))
    assert answer.pods["web-1"].value_milli == 2**63 - 1


async def test_times_are_plain_floats_that_a_trace_can_hold(cluster, provider):
    path = f"{RESOURCE}/namespaces/shop/pods"
    cluster.answers[path] = {"items": [usage("web-1", ("app", {"cpu": "100m"}))]}
    path = f"{EXTERNAL}/namespaces/shop/queue"
    cluster.answers[path] = {
        "items": [{"metricName": "queue", "timestamp": STAMP, "value": "7", "windowSeconds": 60}]
    }
    pods = await one(provider, PodResource("shop", "app=web", "cpu"))
    queue = await one(provider, ExternalMetric("shop", "queue"))
    assert type(pods.pods["web-1"].time_s) is float
    assert type(queue.series[0].sample.time_s) is float


class BehindABackend(MemoryApi):
    """As our adapter answers for another one."""

    async def request(self, *given, **named):
        answer = await super().request(*given, **named)
        return structs.replace(answer, headers={ANSWERED_BY.lower(): "keda"})


async def test_whose_answer_it_was_is_kept(cluster):
    cluster.answers[f"{EXTERNAL}/namespaces/shop/queue"] = {"items": [{"value": "3"}]}
    api = BehindABackend(cluster)
    found = await one(ApiProvider(api, ApiDiscovery(api)), ExternalMetric("shop", "queue"))
    assert found.answered_by == "keda"


async def test_one_container_is_taken_by_name(cluster, provider):
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {
        "items": [
            usage("web-1", ("app", {"cpu": "100m"}), ("log", {})),
            usage("web-2", ("log", {"cpu": "1"})),
        ]
    }
    answer = await one(provider, PodResource("shop", "", "cpu", "app"))
    assert isinstance(answer, PodSamples)
    assert {name: sample.value_milli for name, sample in answer.pods.items()} == {"web-1": 100}


async def test_a_batch_asks_each_thing_once_and_answers_in_order(cluster, provider):
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {
        "items": [usage("web-1", ("app", {"cpu": "100m", "memory": "1Ki"}))]
    }
    questions = [
        PodResource("shop", "app=web", "memory"),
        PodResource("shop", "app=web", "cpu"),
        PodResource("shop", "app=web", "cpu", "app"),
        PodResource("shop", "app=api", "cpu"),
    ]
    answers = await provider.answer(questions)
    assert [answer.pods["web-1"].value_milli for answer in answers] == [1024000, 100, 100, 100]
    assert len(cluster.requests) == 2


async def test_a_pod_metric_takes_the_preferred_version_and_both_selectors(cluster, provider):
    cluster.answers[f"{CUSTOM}/namespaces/shop/pods/*/http%2Frps"] = {}
    path = f"{CUSTOM}/namespaces/shop/pods/*/rps"
    cluster.answers[path] = {
        "items": [value("web-1", "1500m", windowSeconds=30), value("web-2", "2")]
    }
    answer = await one(provider, PodMetric("shop", "rps", "app=web", "verb=GET"))
    assert answer == PodSamples(
        {"web-1": Sample(1500, TIME, 30.0), "web-2": Sample(2000, TIME, None)}, 1000.0
    )
    assert cluster.requests == [
        ("GET", path, {"labelSelector": "app=web", "metricLabelSelector": "verb=GET"})
    ]


@pytest.mark.parametrize(
    ("question", "path"),
    [
        pytest.param(
            ObjectMetric("shop", "ingresses.networking.k8s.io", "web", "rps"),
            f"{CUSTOM}/namespaces/shop/ingresses.networking.k8s.io/web/rps",
            id="namespaced",
        ),
        pytest.param(
            ObjectMetric("shop", "namespaces", "shop", "rps"),
            f"{CUSTOM}/namespaces/shop/metrics/rps",
            id="namespace",
        ),
        pytest.param(
            ObjectMetric("", "nodes", "node-1", "rps"), f"{CUSTOM}/nodes/node-1/rps", id="root"
        ),
    ],
)
async def test_an_object_metric_is_the_one_item_of_its_path(cluster, provider, question, path):
    cluster.answers[path] = {"items": [value("web", "7")]}
    assert await one(provider, question) == ObjectSample(Sample(7000, TIME), 1000.0)


async def test_two_items_for_one_object_are_no_answer(cluster, provider):
    path = f"{CUSTOM}/namespaces/shop/services/web/rps"
    cluster.answers[path] = {"items": [value("web", "7"), value("web", "8")]}
    answer = await one(provider, ObjectMetric("shop", "services", "web", "rps"))
    assert isinstance(answer, Unavailable)
    assert "returned 2 results when we asked for exactly one" in answer.message


async def test_external_values_keep_their_labels_and_order(cluster, provider):
    items = [
        {"metricName": "q", "metricLabels": {"q": "b"}, "timestamp": STAMP, "value": "3"},
        {
            "metricName": "q",
            "metricLabels": None,
            "timestamp": STAMP,
            "value": "4500m",
            "window": 9,
        },
    ]
    cluster.answers[f"{EXTERNAL}/namespaces/shop/q"] = {"items": items}
    answer = await one(provider, ExternalMetric("shop", "q", "q=b"))
    assert isinstance(answer, ExternalSamples)
    assert [(dict(s.labels), s.sample.value_milli, s.sample.window_s) for s in answer.series] == [
        ({"q": "b"}, 3000, None),
        ({}, 4500, 9.0),
    ]
    assert cluster.requests[0][2] == {"labelSelector": "q=b"}


async def test_usage_of_all_containers_is_columns_with_nan_for_what_is_missing(cluster, provider):
    for namespace in ("shop", "bank"):
        cluster.answers[f"{RESOURCE}/namespaces/{namespace}/pods"] = {
            "items": [usage("p", ("app", {"cpu": "250m"}), namespace=namespace)]
        }
    answer = await one(provider, ContainerUsage(("shop", "bank")))
    assert isinstance(answer, ContainerColumns)
    assert list(answer.namespace) == ["shop", "bank"]
    assert answer.cpu_cores.tolist() == [0.25, 0.25]
    assert all(math.isnan(amount) for amount in answer.memory_bytes)
    assert answer.time_s.tolist() == [TIME, TIME]


async def test_usage_of_nodes_is_one_row_for_each_name_asked(cluster, provider):
    cluster.answers[f"{RESOURCE}/nodes"] = {
        "items": [
            {"metadata": {"name": "a"}, "timestamp": STAMP, "usage": {"cpu": "1500m"}},
            {"metadata": {"name": "gone"}, "timestamp": STAMP, "usage": {"cpu": "1"}},
            {"metadata": {"name": "b"}, "timestamp": STAMP, "usage": {"cpu": "-1", "memory": "7"}},
        ]
    }
    answer = await one(provider, NodeUsage(("b", "a", "c")))
    assert isinstance(answer, NodeUsageColumns)
    assert [str(v) for v in answer.cpu_cores] == ["nan", "1.5", "nan"]
    assert [str(v) for v in answer.memory_bytes] == ["7.0", "nan", "nan"]
    assert [str(v) for v in answer.time_s] == [str(TIME), str(TIME), "nan"]


@pytest.mark.parametrize(
    ("refusal", "kind", "reason"),
    [
        (Refusal(404, "NotFound", "the server could not find the metric"), NotFound, "NotFound"),
        (Refusal(403, "Forbidden"), Refused, "Forbidden"),
        (Refusal(400, "BadRequest"), Refused, "BadRequest"),
        (Refusal(500, "InternalError"), Unavailable, "InternalError"),
        (Refusal(429, "TooManyRequests"), Unavailable, "TooManyRequests"),
        (Refusal(504, "Timeout"), Unavailable, "Timeout"),
    ],
)
async def test_a_failed_request_is_a_failure_that_says_which(
    cluster, provider, refusal, kind, reason
):
    cluster.fault = lambda *_: refusal
    answer = await one(provider, ExternalMetric("shop", "q"))
    assert type(answer) is kind
    assert answer.reason == reason
    assert answer.message.startswith("unable to fetch metrics from external metrics API: ")


async def test_no_items_is_no_data(cluster, provider):
    cluster.answers[f"{EXTERNAL}/namespaces/shop/q"] = {"items": []}
    cluster.answers[f"{RESOURCE}/namespaces/shop/pods"] = {"items": None}
    for question, family in [
        (ExternalMetric("shop", "q"), "external"),
        (PodResource("shop", "", "cpu"), "resource"),
    ]:
        answer = await one(provider, question)
        assert isinstance(answer, NoData)
        assert answer.message == f"no metrics returned from {family} metrics API"


async def test_go_s_infinity_is_never_a_number(cluster, provider):
    infinite = "-9223372036854775808m"
    cluster.answers[f"{EXTERNAL}/namespaces/shop/q"] = {
        "items": [{"metricName": "q", "timestamp": STAMP, "value": infinite}]
    }
    cluster.answers[f"{CUSTOM}/namespaces/shop/pods/*/rps"] = {
        "items": [value("web-1", infinite), value("web-2", "1")]
    }
    assert isinstance(await one(provider, ExternalMetric("shop", "q")), Unavailable)
    pods = await one(provider, PodMetric("shop", "rps", ""))
    assert isinstance(pods, PodSamples)
    assert list(pods.pods) == ["web-2"]


@pytest.mark.parametrize("question", [
    PodResource("shop", "", "cpu"),
    ObjectMetric("shop", "ingresses.networking.k8s.io", "door", "rps"),
    ExternalMetric("shop", "rps"),
])  # fmt: skip
async def test_what_is_no_number_is_told_in_the_words_of_kubernetes(cluster, provider, question):
    """As kube-controller-manager 1.37.2 said beside us."""
    answers = {
        f"{RESOURCE}/namespaces/shop/pods": usage("web-1", ("app", {"cpu": "NaN"})),
        f"{CUSTOM}/namespaces/shop/ingresses.networking.k8s.io/door/rps": value("door", "NaN"),
        f"{EXTERNAL}/namespaces/shop/rps": {
            "metricName": "rps",
            "timestamp": STAMP,
            "value": "NaN",
        },
    }
    cluster.answers.update({path: {"items": [item]} for path, item in answers.items()})
    family = {PodResource: "resource", ObjectMetric: "custom", ExternalMetric: "external"}
    found = await one(provider, question)
    assert found.message == (
        f"unable to fetch metrics from {family[type(question)]} metrics API: quantities must match "
        "the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


async def test_nonsense_is_unavailable(cluster, provider):
    cluster.answers[f"{EXTERNAL}/namespaces/shop/q"] = {"items": "none"}
    assert isinstance(await one(provider, ExternalMetric("shop", "q")), Unavailable)
    cluster.answers[f"{EXTERNAL}/namespaces/shop/q"] = {"items": [{"value": "much"}]}
    assert isinstance(await one(provider, ExternalMetric("shop", "q")), Unavailable)
