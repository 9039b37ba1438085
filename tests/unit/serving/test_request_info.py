"""Paths as RBAC sees them; the attributes are those of the wire fixtures (cases C.7)."""

import pytest

from podscale.serving.request_info import RequestInfo, parse_target

G = "custom.metrics.k8s.io"


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        (
            "GET",
            f"/apis/{G}/v1/namespaces/default/pods/%2A/m",
            ("get", "default", "pods", "m", "*"),
        ),
        ("GET", f"/apis/{G}/v1/namespaces/d/metrics/m", ("get", "d", "metrics", "", "m")),
        ("GET", f"/apis/{G}/v1/nodes/*/m", ("get", "", "nodes", "m", "*")),
        ("GET", f"/apis/{G}/v1/namespaces/d/queue", ("list", "d", "queue", "", "")),
        ("GET", f"/apis/{G}/v1/namespaces/d", ("get", "d", "namespaces", "", "d")),
        ("GET", f"/apis/{G}/v1/namespaces/d/status", ("get", "d", "namespaces", "status", "d")),
        ("GET", f"/apis/{G}/v1/namespaces", ("list", "", "namespaces", "", "")),
        ("GET", f"/apis/{G}/v1/pods?watch=true", ("watch", "", "pods", "", "")),
        ("GET", f"/apis/{G}/v1/pods?watch=", ("watch", "", "pods", "", "")),
        ("GET", f"/apis/{G}/v1/pods?watch=False", ("list", "", "pods", "", "")),
        (
            "GET",
            f"/apis/{G}/v1/pods?fieldSelector=a%3Db,metadata.name%3D%3Dweb",
            ("list", "", "pods", "", "web"),
        ),
        (
            "GET",
            f"/apis/{G}/v1/pods?fieldSelector=metadata.name%3Da/b",
            ("list", "", "pods", "", ""),
        ),
        (
            "GET",
            f"/apis/{G}/v1/pods?fieldSelector=metadata.name%3Da&limit=x",
            ("list", "", "pods", "", ""),
        ),
        (
            "GET",
            f"/apis/{G}/v1/pods?fieldSelector=metadata.name%3Da,b",
            ("list", "", "pods", "", ""),
        ),
        ("GET", f"/apis/{G}/v1/pods?watch=%zz&a;watch=1", ("list", "", "pods", "", "")),
        ("GET", f"/apis/{G}/v1/watch/namespaces/d/pods/x/m", ("watch", "d", "pods", "m", "x")),
        ("GET", f"/apis/{G}/v1/proxy/namespaces/d/pods/x/m", ("proxy", "d", "pods", "", "x")),
        ("POST", f"/apis/{G}/v1/namespaces/d/pods", ("create", "d", "pods", "", "")),
        ("DELETE", f"/apis/{G}/v1/namespaces/d/pods", ("deletecollection", "d", "pods", "", "")),
        ("PATCH", f"/apis/{G}/v1/namespaces/d/pods/x", ("patch", "d", "pods", "", "x")),
        ("OPTIONS", f"/apis/{G}/v1/namespaces/d/pods/x", ("", "d", "pods", "", "x")),
    ],
)
def test_resource_requests(method: str, target: str, expected: tuple[str, ...]) -> None:
    info = parse_target(method, target).info
    assert info.is_resource
    assert (info.group, info.version) == (G, "v1")
    assert (info.verb, info.namespace, info.resource, info.subresource, info.name) == expected


def test_the_core_group_has_no_name() -> None:
    info = parse_target("GET", "/api/v1/namespaces/d/pods").info
    assert (info.is_resource, info.group, info.version) == (True, "", "v1")
    assert (info.verb, info.namespace, info.resource) == ("list", "d", "pods")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        f"/apis/{G}",
        f"/apis/{G}/v1",
        f"/apis/{G}/v1/",
        "/metrics",
    ],
)
def test_everything_else_is_judged_by_its_path(target: str) -> None:
    assert parse_target("GET", target).info == RequestInfo(False, target, "get")


@pytest.mark.parametrize(
    ("text", "seconds", "is_refused"),
    [
        ("10s", 10.0, False),
        ("0", None, False),
        ("", None, False),
        ("-1s", None, False),
        ("soon", None, True),
    ],
)
def test_timeout_parameter(text: str, seconds: float | None, is_refused: bool) -> None:
    target = parse_target("GET", f"/apis?timeout={text}")
    assert target.timeout_s == seconds
    assert (target.refusal is not None) is is_refused


@pytest.mark.parametrize(
    ("target", "code"),
    [
        pytest.param("/a?" + "&".join("a" * 256), 200, id="as-many-parameters-as-may-be"),
        pytest.param("/a?" + "&".join("a" * 257), 400, id="one-more"),
        pytest.param("/a?a=" + "%41" * 4096, 200, id="as-many-escapes-as-may-be"),
        pytest.param("/a?a=" + "%41" * 4097, 400, id="one-escape-more"),
        pytest.param("/a?timeout=" + "1ns" * 85, 200, id="a-long-timeout"),
        pytest.param("/a?timeout=" + "1ns" * 86, 400, id="too-long-a-timeout"),
        pytest.param("/" + "a" * 4095, 200, id="as-long-a-path-as-may-be"),
        pytest.param("/" + "a" * 4096, 414, id="one-character-more"),
    ],
)
def test_what_is_read_of_a_target_has_bounds(target: str, code: int) -> None:
    parsed = parse_target("GET", target)
    refused = 200 if parsed.refusal is None else parsed.refusal.code
    assert (414 if parsed.is_too_long else refused) == code


def test_selectors_too_long_to_be_read_before_login_authorize_the_whole_list() -> None:
    path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods?fieldSelector=metadata.name%3Dx"
    assert parse_target("GET", path).info.name == "x"
    assert parse_target("GET", path + "&labelSelector=" + "a" * 40).info.name == "x"
    long = parse_target("GET", path + "&labelSelector=" + ",".join(["a"] * 1100)).info
    assert (long.verb, long.name) == ("list", "")
