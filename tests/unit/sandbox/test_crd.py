import pytest

from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage
from podscale.serving.status import StatusError

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


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.size"),
        ({"size": "1"}, "spec.size"),
        ({"size": True}, "spec.size"),
        ({"size": 0}, "spec.size"),
        ({"size": 10}, "spec.size"),
        ({"size": 1, "mode": "Sometimes"}, "spec.mode"),
        ({"size": 1, "port": 1.5}, "spec.port"),
        ({"size": 1, "map": {"a": "b"}}, "spec.map.a"),
        ({"size": 1, "list": [{"x": 1}]}, "spec.list[0].x"),
    ],
)
def test_what_the_schema_forbids_is_refused_with_the_field(objects, spec, field):
    with pytest.raises(StatusError) as refused:
        create(objects, spec)
    assert refused.value.status.code == 422
    assert field in [cause.field for cause in refused.value.status.details.causes]


def test_without_its_definition_a_resource_and_its_objects_are_gone(objects):
    create(objects, {"size": 1})
    objects.delete("customresourcedefinitions", "", "things.example.com")
    assert objects.registry.named("example.com", "things") is None
    assert list(objects.storage.table("example.com", "things").keys()) == []
