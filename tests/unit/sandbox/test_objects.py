import pytest

from podscale.core.selectors import fields, selector
from podscale.sandbox.http import subresources
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage
from podscale.serving.status import StatusError

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture
def objects() -> SandboxObjects:
    return SandboxObjects(Storage(), SandboxResources())


def deployment(name="web", **spec):
    return {"metadata": {"name": name}, "spec": {"replicas": 2, **spec}}


def pod(name, *, labels=None, status=None, **metadata):
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}, **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": status or READY,
    }


def test_revisions_grow_over_all_resources(objects):
    first = objects.create("configmaps", "default", {"metadata": {"name": "a"}})
    second = objects.create("secrets", "default", {"metadata": {"name": "a"}})
    assert second.revision > first.revision
    assert objects.get("configmaps", "default", "a")["metadata"]["resourceVersion"] == str(
        first.revision
    )


def test_the_generation_counts_changes_of_the_spec_only(objects):
    objects.create("deployments", "default", deployment())
    held = objects.get("deployments", "default", "web")
    assert held["metadata"]["generation"] == 1
    labelled = {**held, "metadata": {**held["metadata"], "labels": {"a": "b"}}}
    assert (
        objects.update("deployments", "default", "web", labelled).object["metadata"]["generation"]
        == 1
    )
    held = objects.get("deployments", "default", "web")
    changed = {**held, "spec": {**held["spec"], "replicas": 5}}
    assert (
        objects.update("deployments", "default", "web", changed).object["metadata"]["generation"]
        == 2
    )


def test_spec_and_status_are_written_apart(objects):
    objects.create("deployments", "default", {**deployment(), "status": {"replicas": 9}})
    held = objects.get("deployments", "default", "web")
    assert "status" not in held
    both = {**held, "spec": {**held["spec"], "replicas": 7}, "status": {"replicas": 1}}
    after = objects.update("deployments", "default", "web", both, "status").object
    assert (after["spec"]["replicas"], after["status"]) == (2, {"replicas": 1})
    both["metadata"] = after["metadata"]
    both["status"] = {"replicas": 5}
    after = objects.update("deployments", "default", "web", both).object
    assert (after["spec"]["replicas"], after["status"]) == (7, {"replicas": 1})


def test_an_old_resource_version_is_a_conflict(objects):
    objects.create("configmaps", "default", {"metadata": {"name": "a"}})
    held = objects.get("configmaps", "default", "a")
    objects.update("configmaps", "default", "a", {**held, "data": {"x": "1"}})
    with pytest.raises(StatusError) as refused:
        objects.update("configmaps", "default", "a", {**held, "data": {"x": "2"}})
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    assert "the object has been modified" in refused.value.status.message


def test_writing_what_is_there_makes_no_revision(objects):
    objects.create("configmaps", "default", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    before = objects.stored(objects.resource("configmaps"), "default", "a")
    after = objects.update("configmaps", "default", "a", before.object)
    assert after.revision == before.revision


def test_generated_names_are_unique(objects):
    names = {
        objects.create("configmaps", "default", {"metadata": {"generateName": "x-"}}).key[1]
        for _ in range(50)
    }
    assert len(names) == 50
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "Upper"}}, 422),
        ({"metadata": {"name": "x", "namespace": "other"}}, 400),
        ({"metadata": {"name": "default-exists"}}, 409),
    ],
)
def test_what_cannot_be_created_is_refused(objects, body, code):
    objects.create("configmaps", "default", {"metadata": {"name": "default-exists"}})
    with pytest.raises(StatusError) as refused:
        objects.create("configmaps", "default", body)
    assert refused.value.status.code == code


def test_nothing_is_created_in_a_namespace_that_is_not_there(objects):
    with pytest.raises(StatusError) as refused:
        objects.create("configmaps", "nowhere", {"metadata": {"name": "a"}})
    assert refused.value.status.message == 'namespaces "nowhere" not found'


def test_finalizers_hold_an_object_until_they_are_gone(objects):
    body = {"metadata": {"name": "a", "finalizers": ["x/y"]}}
    objects.create("configmaps", "default", body)
    objects.delete("configmaps", "default", "a")
    held = objects.get("configmaps", "default", "a")
    assert held["metadata"]["deletionTimestamp"]
    free = {**held, "metadata": {**held["metadata"], "finalizers": []}}
    objects.update("configmaps", "default", "a", free)
    assert objects.find("configmaps", "default", "a") is None


def test_deleting_an_owner_deletes_what_it_owns(objects):
    owner = objects.create("deployments", "default", deployment())
    reference = {"kind": "Deployment", "name": "web", "uid": owner.object["metadata"]["uid"]}
    objects.put(pod("owned", ownerReferences=[reference]))
    objects.put(pod("shared", ownerReferences=[reference, {"kind": "X", "uid": "other"}]))
    objects.delete("deployments", "default", "web")
    assert objects.find("pods", "default", "owned") is None
    assert len(objects.get("pods", "default", "shared")["metadata"]["ownerReferences"]) == 1


def test_a_namespace_takes_its_content_along(objects):
    objects.create("namespaces", "", {"metadata": {"name": "team"}})
    objects.create("configmaps", "team", {"metadata": {"name": "a"}})
    objects.delete("namespaces", "", "team")
    assert objects.find("namespaces", "", "team") is None
    assert objects.list("configmaps", "team") == []


def test_a_running_pod_waits_for_its_kubelet(objects):
    objects.has_kubelet = True
    seeded = pod("p")
    seeded["spec"]["nodeName"] = "n1"
    objects.put(seeded)
    objects.delete("pods", "default", "p")
    assert objects.get("pods", "default", "p")["metadata"]["deletionTimestamp"]
    objects.delete("pods", "default", "p", options={"gracePeriodSeconds": 0})
    assert objects.find("pods", "default", "p") is None


def test_lists_take_selectors_and_come_in_order(objects):
    for name, app in (("b", "web"), ("a", "web"), ("c", "db")):
        objects.put(pod(name, labels={"app": app}))
    objects.put(pod("d", labels={"app": "web"}, status={"phase": "Pending"}))
    found = objects.list(
        "pods",
        "default",
        selector.parse("app=web"),
        fields.parse("status.phase=Running"),
    )
    assert [p["metadata"]["name"] for p in found] == ["a", "b"]


def test_scale_reads_and_writes_the_replicas(objects):
    chosen = {"matchLabels": {"app": "web"}}
    objects.create("deployments", "default", deployment(selector=chosen))
    resource = objects.resource("deployments")
    scale = subresources.read_scale(resource, objects.get(resource, "default", "web"))
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    scale["spec"]["replicas"] = 5
    subresources.write_scale(objects, resource, "default", "web", scale)
    assert objects.get(resource, "default", "web")["spec"]["replicas"] == 5
    with pytest.raises(StatusError) as refused:
        subresources.write_scale(objects, resource, "default", "web", scale)
    assert refused.value.status.reason == "Conflict"


@pytest.mark.parametrize(
    ("spec", "evictable"),
    [
        ({"minAvailable": 2}, 2),
        ({"maxUnavailable": 1}, 1),
        ({"minAvailable": 4}, 0),
        ({"minAvailable": 0}, 4),
    ],
)
def test_evictions_spend_the_disruption_budget(objects, spec, evictable):
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 4}}
    uid = objects.create("replicasets", "default", body).object["metadata"]["uid"]
    owner = {"kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
    for name in "abcd":
        objects.put(pod(name, labels={"app": "web"}, ownerReferences=[owner]))
    chosen = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "b"}, "spec": {**spec, "selector": chosen}}
    objects.create("poddisruptionbudgets", "default", budget)
    refusals = [refusal for name in "abcd" if (refusal := _refusal(objects, name))]
    assert 4 - len(refusals) == evictable
    for refusal in refusals:
        assert refusal.status.code == 429
        assert refusal.status.details.causes[0].reason == "DisruptionBudget"


def _refusal(objects, name):
    try:
        subresources.evict(objects, "default", name, {})
    except StatusError as error:
        return error
    return None


def test_resize_changes_resources_and_nothing_else():
    held = pod("p")
    body = {
        "spec": {
            "containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]
        }
    }
    container = subresources.resized(held, body)["spec"]["containers"][0]
    assert container == {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
