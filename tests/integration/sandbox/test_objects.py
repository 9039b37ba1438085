"""The sandbox's API server over HTTP: objects, lists, places of their own, discovery."""

from tests.integration.sandbox.client import MAPS, PODS, configmap, pod


async def test_objects_are_created_read_replaced_patched_and_deleted(client):
    status, made = await client.call("POST", MAPS, configmap("a", x="1"))
    assert (status, made["data"]) == (201, {"x": "1"})
    made["data"]["x"] = "2"
    status, replaced = await client.call("PUT", f"{MAPS}/a", made)
    assert status == 200
    assert replaced["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert (await client.call("PUT", f"{MAPS}/a", made))[0] == 409
    for kind, patch in (
        ("application/merge-patch+json", {"data": {"y": "3"}}),
        ("application/strategic-merge-patch+json", {"data": {"y": "3"}}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/y", "value": "3"}]),
    ):
        headers = {"Content-Type": kind}
        status, patched = await client.call("PATCH", f"{MAPS}/a", patch, headers=headers)
        assert (status, patched["data"]) == (200, {"x": "2", "y": "3"})
    assert (await client.call("DELETE", f"{MAPS}/a"))[0] == 200
    status, gone = await client.call("GET", f"{MAPS}/a")
    assert (status, gone["reason"], gone["message"]) == (
        404,
        "NotFound",
        'configmaps "a" not found',
    )


async def test_a_list_comes_in_pages_that_share_one_revision(client, server):
    for number in range(5):
        server.objects.put(configmap(f"m{number}"))
    status, page = await client.call("GET", f"{MAPS}?limit=2")
    assert [item["metadata"]["name"] for item in page["items"]] == ["m0", "m1"]
    assert page["metadata"]["remainingItemCount"] == 3
    assert "kind" not in page["items"][0]  # as kube-apiserver for built-in types
    server.objects.put(configmap("z"))
    token = page["metadata"]["continue"]
    _, rest = await client.call("GET", f"{MAPS}?limit=10&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["m2", "m3", "m4", "z"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
    server.compact()
    server.objects.put(configmap("zz"))
    server.compact()
    status, expired = await client.call("GET", f"{MAPS}?limit=10&continue={token}")
    assert (status, expired["reason"]) == (410, "Expired")


async def test_selectors_choose_and_wrong_ones_are_told(client, server):
    server.objects.put(pod("a", app="web"))
    server.objects.put(pod("b", app="db"))
    _, found = await client.call("GET", f"{PODS}?labelSelector=app%20in%20(web)")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    _, found = await client.call("GET", f"{PODS}?fieldSelector=metadata.name%3Db")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
    status, refused = await client.call("GET", f"{PODS}?labelSelector=a%20b")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert "expected: in, notin" in refused["message"]
    status, refused = await client.call("GET", f"{PODS}?fieldSelector=spec.x%3Db")
    assert (status, refused["message"]) == (400, "field label not supported: spec.x")


async def test_status_and_scale_are_places_of_their_own(client, server):
    deployment = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    await client.call("POST", path, deployment)
    _, scale = await client.call("GET", f"{path}/web/scale")
    assert (scale["spec"], scale["status"]["selector"]) == ({"replicas": 2}, "app=web")
    scale["spec"]["replicas"] = 4
    status, after = await client.call("PUT", f"{path}/web/scale", scale)
    assert (status, after["spec"]["replicas"]) == (200, 4)
    assert (await client.call("PUT", f"{path}/web/scale", scale))[0] == 409
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"status": {"replicas": 4}, "spec": {"replicas": 9}}
    status, after = await client.call("PATCH", f"{path}/web/status", body, headers=headers)
    assert (after["spec"]["replicas"], after["status"]["replicas"]) == (4, 4)
    assert after["metadata"]["generation"] == 2


async def test_eviction_and_resize(client, server):
    server.objects.put(pod("p", app="web"))
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    resources = {"requests": {"cpu": "200m"}}
    body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    status, after = await client.call("PATCH", f"{PODS}/p/resize", body, headers=headers)
    assert (status, after["spec"]["containers"][0]["resources"]) == (200, resources)
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}
    assert (await client.call("POST", f"{PODS}/p/eviction", eviction))[0] == 201
    assert (await client.call("GET", f"{PODS}/p"))[0] == 404


async def test_discovery_is_aggregated_and_not_sent_twice(client):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    _, document = await client.call("GET", "/apis", headers={"Accept": accept})
    served = {
        (item["metadata"]["name"], version["version"], entry["resource"])
        for item in document["items"]
        for version in item["versions"]
        for entry in version["resources"]
    }
    assert ("apps", "v1", "deployments") in served
    assert (await client.call("GET", "/apis"))[0] == 406
    async with client.session.get(
        client._server.url + "/apis",
        headers={"Accept": accept, "Authorization": f"Bearer {client._server.admin_token}"},
    ) as first:
        tag = first.headers["ETag"]
    headers = {"Accept": accept, "If-None-Match": tag}
    assert (await client.call("GET", "/apis", headers=headers))[0] == 304
