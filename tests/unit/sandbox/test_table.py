import pytest

from podscale.sandbox.http import bodies
from podscale.sandbox.objects.resources import BUILTIN, Column, SandboxResource
from podscale.sandbox.objects.storage import Stored

BY_NAME = {resource.name: resource for resource in BUILTIN}
NOW = 1_600_000_000.0
META = {"name": "x", "namespace": "default", "creationTimestamp": "2020-01-01T00:00:00Z"}


def cells(resource, content):
    stored = Stored(("default", "x"), {"metadata": META, **content}, 1)
    printed = bodies.table_of(resource, resource.version, [stored], {}, {}, NOW)
    columns = [column["name"] for column in printed["columnDefinitions"]]
    return dict(zip(columns, printed["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (600, "10m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (30000, "8h"),
        (180000, "2d"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds, text):
    assert bodies.duration_text(seconds) == text


def test_an_autoscaler_shows_current_and_target_values():
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 80},
                },
            },
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "rps"},
                    "target": {"type": "AverageValue", "averageValue": "5"},
                },
            },
        ],
    }
    current = [{"type": "Resource", "resource": {"current": {"averageUtilization": 33}}}]
    row = cells(
        BY_NAME["horizontalpodautoscalers.autoscaling"],
        {"spec": spec, "status": {"currentMetrics": current, "currentReplicas": 2}},
    )
    assert row["Reference"] == "Deployment/web"
    assert row["Targets"] == "cpu: 33%/80%, <unknown>/5 (avg)"
    assert row["Replicas"] == 2


def test_a_pod_shows_what_keeps_it_waiting():
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"ready": True, "restartCount": 1},
            {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ],
    }
    row = cells(BY_NAME["pods"], {"spec": {"containers": [{}, {}]}, "status": status})
    assert (row["Ready"], row["Status"], row["Restarts"]) == ("1/2", "CrashLoopBackOff", 1)


def test_custom_columns_follow_their_paths():
    columns = (
        Column("Mode", "string", ".spec.mode"),
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        Column("First", "integer", ".spec.list[0].n"),
        Column("Absent", "string", ".spec.nope.deep"),
    )
    resource = SandboxResource(
        "g", "v1", "things", "Thing", is_custom=True, columns={"v1": columns}
    )
    content = {
        "spec": {"mode": "Auto", "list": [{"n": 7}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    row = cells(resource, content)
    assert row == {"Name": "x", "Mode": "Auto", "Ready": "True", "First": 7, "Absent": None}


@pytest.mark.parametrize("resource", BUILTIN, ids=lambda resource: resource.name)
def test_every_builtin_resource_prints_even_when_it_is_nearly_empty(resource):
    reference = {"kind": "Deployment", "name": "d"}
    row = cells(resource, {"spec": {"scaleTargetRef": reference, "maxReplicas": 1}})
    assert row["Name"] == "x"


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_condition_is_found_by_either_quote(quote):
    path = f".status.conditions[?(@.type=={quote}Ready{quote})].status"
    content = {"status": {"conditions": [{"type": "Other"}, {"type": "Ready", "status": "True"}]}}
    assert bodies.follow(content, path) == "True"
