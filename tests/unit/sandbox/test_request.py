import pytest

from podscale.sandbox.http.request import parse_path, verb_of


@pytest.mark.parametrize(
    ("path", "group", "namespace", "plural", "name", "subresource"),
    [
        ("/api/v1/pods", "", "", "pods", "", ""),
        ("/api/v1/namespaces", "", "", "namespaces", "", ""),
        ("/api/v1/namespaces/a", "", "a", "namespaces", "a", ""),
        ("/api/v1/namespaces/a/status", "", "a", "namespaces", "a", "status"),
        ("/api/v1/namespaces/a/pods/p/eviction", "", "a", "pods", "p", "eviction"),
        (
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "apps",
            "a",
            "deployments",
            "d",
            "scale",
        ),
        ("/apis/apps/v1/deployments/", "apps", "", "deployments", "", ""),
        ("/apis/g/v1/namespaces/a/pods/%2A/m", "g", "a", "pods", "*", "m"),
    ],
)
def test_paths_name_resources(path, group, namespace, plural, name, subresource):
    target = parse_path(path)
    assert target.is_resource
    assert (target.group, target.namespace, target.plural, target.name, target.subresource) == (
        group,
        namespace,
        plural,
        name,
        subresource,
    )


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/metrics"])
def test_other_paths_name_none(path):
    assert not parse_path(path).is_resource


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", "/api/v1/pods", {}, "list"),
        ("GET", "/api/v1/pods", {"watch": "true"}, "watch"),
        ("GET", "/api/v1/namespaces/a/pods/p", {}, "get"),
        ("DELETE", "/api/v1/namespaces/a/pods", {}, "deletecollection"),
        ("DELETE", "/api/v1/namespaces/a/pods/p", {}, "delete"),
        ("PATCH", "/api/v1/namespaces/a/pods/p", {}, "patch"),
        ("POST", "/api/v1/namespaces/a/pods", {}, "create"),
        ("GET", "/healthz", {}, "get"),
    ],
)
def test_methods_are_verbs(method, path, query, verb):
    assert verb_of(method, parse_path(path), query) == verb
