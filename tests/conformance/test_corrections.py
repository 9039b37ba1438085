"""What was learned of prometheus-adapter after its case files were made (adapter.md, the end).

Rows as in part C of the cases, in their world.
"""

import pytest

from tests.conformance.adapter_served import served

__all__ = ["served"]

METRICS = "/apis/metrics.k8s.io/v1beta1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
QUEUE = f"{EXTERNAL}/namespaces/default/queue_depth"
PRODUCED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMED = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@pytest.mark.parametrize(
    ("path", "resource", "group"),
    [
        (QUEUE, "*", "external.metrics.k8s.io"),
        (f"{METRICS}/nodes", "nodes", "metrics.k8s.io"),
        (f"{METRICS}/pods", "pods", "metrics.k8s.io"),
        (f"{METRICS}/namespaces/prod/pods", "pods", "metrics.k8s.io"),
    ],
)
@pytest.mark.parametrize("word", ["watch=true", "watch=1", "labelSelector=a%3Db&watch=T"])
def test_what_can_only_be_listed_says_so_to_a_watch(path, resource, group, word, served):
    answer = served.ask(f"{path}?{word}")
    assert answer.status == 405
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'watch is not supported on resources of kind "{resource}.{group}"',
        "reason": "MethodNotAllowed",
        "details": {"group": group, "kind": resource},
        "code": 405,
    }
    # It reads the front proxy's CAs every minute, whoever asks meanwhile.
    assert not [call for call in answer.calls if "extension-apiserver-authentication" not in call]


def test_wrong_options_of_a_watch_come_before_the_watch(served):
    answer = served.ask(f"{QUEUE}?watch=true&fieldSelector=foo%3Dbar")
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        (QUEUE, f"{PRODUCED}, {STREAMED}"),
        (f"{CUSTOM}/namespaces/default/pods/*/vals", f"{PRODUCED}, {STREAMED}"),
        (f"{CUSTOM}/nodes/node-a/t_node_gauge", f"{PRODUCED}, {STREAMED}"),
        (f"{CUSTOM}/namespaces/default/metrics/http_requests", f"{PRODUCED}, {STREAMED}"),
        (f"{METRICS}/nodes", f"{PRODUCED}, {STREAMED}"),
        (f"{METRICS}/nodes/node-a", PRODUCED),
        (f"{METRICS}/namespaces/default/pods/web-1", PRODUCED),
    ],
)
@pytest.mark.parametrize("accept", ["text/html", "application/xml;q=0.9, image/png"])
def test_a_media_type_of_nobody_is_refused_before_anything_is_asked(path, listed, accept, served):
    answer = served.ask(path, {"headers": {"Accept": accept}})
    assert answer.status == 406
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"406: Not Acceptable\n\nAvailable representations: {listed}",
        "reason": "NotAcceptable",
        "details": {},
        "code": 406,
    }
    assert not [call for call in answer.calls if call.startswith("PROM ")]


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [(f"{METRICS}/nodes/a/b", "GET", 404), (QUEUE, "POST", 405), (f"{QUEUE}/x", "GET", 404)],
)
def test_path_and_method_are_judged_before_the_media_type(path, method, status, served):
    options = {"method": method, "headers": {"Accept": "text/html"}}
    assert served.ask(path, options).status == status


@pytest.mark.parametrize(
    ("path", "status", "items"),
    [
        (QUEUE, 200, 0),
        (f"{CUSTOM}/namespaces/default/pods/*/http_requests_per_second", 200, 0),
        (f"{CUSTOM}/namespaces/default/pods/web-1/http_requests_per_second", 404, None),
        (f"{METRICS}/namespaces/default/pods", 200, 0),
        (f"{METRICS}/nodes", 200, 0),
        (f"{METRICS}/namespaces/default/pods/web-1", 404, None),
    ],
)
def test_a_result_of_null_is_an_empty_vector(path, status, items, served):
    served.prometheus.mode = "nullresult"
    try:
        answer = served.ask(path)
    finally:
        served.prometheus.mode = ""
    assert answer.status == status, answer.body
    assert answer.calls
    if items is not None:
        assert len(answer.body["items"]) == items


@pytest.mark.parametrize("version", ["v2", "v3/apis/metrics.k8s.io/v1beta1"])
def test_operations_name_their_kind_and_its_definition_is_there(version, served):
    document = served.ask(f"/openapi/{version}").body
    definitions = document.get("definitions") or document["components"]["schemas"]
    described = {
        (kind["group"], kind["version"], kind["kind"])
        for one in definitions.values()
        for kind in one.get("x-kubernetes-group-version-kind", ())
    }
    named = {}
    for path, item in document["paths"].items():
        if path.endswith("/"):  # the list of resources has no kind
            continue
        kind = item["get"]["x-kubernetes-group-version-kind"]
        named[path] = (kind["group"], kind["version"], kind["kind"])
        assert path.startswith(f"/apis/{kind['group']}/{kind['version']}/")
    assert set(named.values()) <= described
    pods = f"{METRICS}/namespaces/{{namespace}}/pods"
    assert named[pods] == named[f"{METRICS}/pods"] == ("metrics.k8s.io", "v1beta1", "PodMetrics")
    assert named[f"{METRICS}/nodes/{{name}}"] == ("metrics.k8s.io", "v1beta1", "NodeMetrics")
