import pytest

from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"type": "string", "enum": ["Auto", "Off"], "default": "Auto"},
        "port": {"x-kubernetes-int-or-string": True},
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}},
        },
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "kind": "CustomResourceDefinition",
    "apiVersion": "apiextensions.k8s.io/v1",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
        "versions": [
            {
                "name": version,
                "served": True,
                "storage": version == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                    },
                },
            }
            for version in ("v1beta1", "v1")
        ],
    },
}


@pytest.fixture
def objects() -> SandboxObjects:
    made = SandboxObjects(Storage(), SandboxResources())
    made.put(DEFINITION)
    return made


def create(objects, spec):
    body = {"kind": "Thing", "metadata": {"name": "t"}, "spec": spec}
    return objects.create("things.example.com", "default", body).object


def test_a_definition_is_established_and_serves_its_versions(objects):
    held = objects.get("customresourcedefinitions", "", "things.example.com")
    assert {c["type"] for c in held["status"]["conditions"]} == {"NamesAccepted", "Established"}
    for version in ("v1", "v1beta1"):
        resource = objects.registry.find("example.com", version, "things")
        assert resource is not None
        assert resource.version == "v1"
    assert objects.registry.find("example.com", "v2", "things") is None


def test_defaults_are_filled_in_and_unknown_fields_dropped(objects):
    spec = {"size": 1, "list": [{}, {"x": "z", "q": 1}], "junk": 1, "free": {"any": [1]}}
    assert create(objects, spec)["spec"] == {
        "size": 1,
        "mode": "Auto",
        "list": [{"x": "y"}, {"x": "z"}],
        "free": {"any": [1]},
    }


def test_without_its_definition_a_resource_and_its_objects_are_gone(objects):
    create(objects, {"size": 1})
    objects.delete("customresourcedefinitions", "", "things.example.com")
    assert objects.registry.named("example.com", "things") is None
    assert list(objects.storage.table("example.com", "things").keys()) == []
