"""Which fields of a hand-written HPA are wrong, as the API server says, and its defaults.

``podscale hpa eval`` tells it without one, in its own words.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from hpa.decide.api.reading import read, to_v2
from hpa.decide.api.spec import HPA
from podscale.cli.evaluation.manifest import problems
from tests.cluster.hpa_specs import SOURCES, hpa, random_hpa
from tests.cluster.plane import Plane
from tests.tools import autoscaler_crd
from tests.tools.programs import OLDER, release

SHORT, LONG = 1_000, 20_000

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
HALF = {"type": "Utilization", "averageUtilization": 50}
ONE = {"type": "AverageValue", "averageValue": "1"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": HALF}}
QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}, "target": ONE}}
POLICY = {"type": "Pods", "value": 1, "periodSeconds": 60}


def resource(**target: Any) -> list[Any]:
    return [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def pods(name: str = "load", **target: Any) -> list[Any]:
    return [{"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}]


def external(**target: Any) -> list[Any]:
    return [{"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}]


def on_object(described: Any = None, **target: Any) -> list[Any]:
    about = described or {"apiVersion": "v1", "kind": "Service", "name": "web"}
    source = {"describedObject": about, "metric": {"name": "hits"}, "target": target}
    return [{"type": "Object", "object": source}]


def container(name: str = "cpu", of: str = "app", **target: Any) -> list[Any]:
    source = {"name": name, "container": of, "target": target or HALF}
    return [{"type": "ContainerResource", "containerResource": source}]


def up(**rules: Any) -> dict[str, Any]:
    return {"scaleUp": rules}


SPECS: Mapping[str, dict[str, Any]] = {
    "good": {},
    "max-0": {"maxReplicas": 0},
    "max-negative": {"maxReplicas": -1},
    "max-under-min": {"minReplicas": 5, "maxReplicas": 3},
    "min-negative": {"minReplicas": -1},
    "min-0-without-a-waker": {"minReplicas": 0},
    "min-0": {"minReplicas": 0, "metrics": [QUEUE]},
    "no-kind": {"scaleTargetRef": {**TARGET, "kind": ""}},
    "no-name": {"scaleTargetRef": {**TARGET, "name": ""}},
    "name-with-a-slash": {"scaleTargetRef": {**TARGET, "name": "a/b%c"}},
    "name-of-dots": {"scaleTargetRef": {**TARGET, "name": ".."}},
    "no-group": {"scaleTargetRef": {**TARGET, "apiVersion": "v1"}},
    "no-version": {"scaleTargetRef": {**TARGET, "apiVersion": ""}},
    "three-parts": {"scaleTargetRef": {**TARGET, "apiVersion": "a/b/c"}},
    "replication-controller": {
        "scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    },
    "no-target-type": {"metrics": resource(averageUtilization=50)},
    "unknown-target-type": {"metrics": resource(type="Best", averageUtilization=50)},
    "no-utilization": {"metrics": resource(type="Utilization")},
    "utilization-0": {"metrics": resource(type="Utilization", averageUtilization=0)},
    "both-targets": {
        "metrics": resource(type="Utilization", averageUtilization=5, averageValue="1")
    },
    "average-0": {"metrics": resource(type="AverageValue", averageValue="0")},
    "average-negative": {"metrics": pods(type="AverageValue", averageValue="-1")},
    "pods-without-average": {"metrics": pods(type="Value", value="1")},
    "pods-without-name": {"metrics": pods("", **ONE)},
    "pods-with-a-slash": {"metrics": pods("a/b", **ONE)},
    "external-without-target": {"metrics": external(type="Value")},
    "external-with-both": {"metrics": external(type="Value", value="1", averageValue="2")},
    "external-0": {"metrics": external(type="Value", value="0")},
    "object-without-target": {"metrics": on_object(type="Value")},
    "object-without-group": {"metrics": on_object(type="Value", value="1")},
    "object-of-three-parts": {
        "metrics": on_object(
            {"apiVersion": "a/b/c", "kind": "Service", "name": "web"}, type="Value", value="1"
        )
    },
    "object-without-kind": {
        "metrics": on_object({"apiVersion": "v1", "name": "web"}, type="Value", value="1")
    },
    "container": {"metrics": container()},
    "container-without-name": {"metrics": container(of="")},
    "container-of-foo": {"metrics": container("foo")},
    "container-of-hugepages": {"metrics": container("hugepages-2Mi", **ONE)},
    "container-of-a-device": {"metrics": container("example.com/gpu", **ONE)},
    "container-of-storage": {"metrics": container("storage", **ONE)},
    "unknown-type": {"metrics": [{"type": "Best"}]},
    "no-source": {"metrics": [{"type": "Pods"}]},
    "another-source": {"metrics": [{"type": "Pods", "resource": CPU["resource"]}]},
    "two-sources": {"metrics": [{**CPU, "pods": pods(**ONE)[0]["pods"]}]},
    "window-negative": {"behavior": up(stabilizationWindowSeconds=-1)},
    "window-of-an-hour-and-more": {"behavior": up(stabilizationWindowSeconds=3601)},
    "unknown-select": {"behavior": up(selectPolicy="Best")},
    "no-policies": {"behavior": up(policies=[])},
    "unknown-policy": {"behavior": up(policies=[{**POLICY, "type": "Best"}])},
    "policy-0": {"behavior": up(policies=[{**POLICY, "value": 0}])},
    "period-0": {"behavior": up(policies=[{**POLICY, "periodSeconds": 0}])},
    "period-long": {"behavior": up(policies=[{**POLICY, "periodSeconds": 1801}])},
    "tolerance-negative": {"behavior": up(tolerance="-1")},
    "several": {
        "maxReplicas": 0,
        "metrics": [*resource(type="Best"), *pods("", type="AverageValue")],
        "behavior": up(selectPolicy="Best", policies=[{**POLICY, "value": -1}]),
    },
}  # fmt: skip


Said = tuple[list[str], list[str]]  # fields that we and the API server name, each once


def told(plane: Plane, namespace: str, written: dict[str, Any]) -> tuple[Said, HPA | None]:
    """What is wrong with the HPA; nothing is stored. If nothing is, also how it would be."""
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers?dryRun=All"
    answer = plane.admin.request("POST", path, written)
    assert answer.status in (201, 422), answer.raw
    causes = answer.body.get("details", {}).get("causes", ())
    theirs = sorted({each["field"] for each in causes})
    said = sorted({each.partition(": ")[0] for each in problems(to_v2(written))}), theirs
    return said, read(to_v2(answer.body)) if answer.status == 201 else None


@pytest.fixture(scope="module")
def said(plane: Plane) -> Mapping[str, Said]:
    plain = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 3, "metrics": [CPU]}
    with plane.namespace() as namespace:
        return {
            name: told(plane, namespace, hpa({**plain, **each}))[0] for name, each in SPECS.items()
        }


@pytest.mark.parametrize("name", SPECS)
def test_the_fields_that_the_api_server_refuses_are_named(
    name: str, said: Mapping[str, Said]
) -> None:
    ours, theirs = said[name]
    assert ours == theirs


@pytest.mark.skipif(release() == OLDER, reason="the CRD has the schema of the newest release")
def test_the_crd_of_own_mode_has_the_schema_of_the_api_server(plane: Plane) -> None:
    assert autoscaler_crd.TARGET.read_text() == autoscaler_crd.text_of(plane)


@pytest.mark.timeout(900)
def test_random_hpas_are_refused_and_filled_as_by_the_api_server(plane: Plane) -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    differing, good, findings = [], Counter[str](), 0
    with plane.namespace() as namespace:
        for seed in range(start, start + count):
            drawn = random_hpa(seed)
            (ours, theirs), filled = told(plane, namespace, drawn)
            if filled is not None:
                good.update({each.type for each in filled.metrics})
                found = read(to_v2(drawn))
                found = replace(found, namespace=namespace, generation=filled.generation)
                if found != filled:
                    differing.append(f"seed {seed}: we fill it to {found}, they to {filled}")
            findings += len(theirs)
            if ours != theirs:
                differing.append(
                    f"seed {seed}: only we say {Counter(ours) - Counter(theirs)},"
                    f" only they {Counter(theirs) - Counter(ours)}"
                )
    print(
        f"validated by the API server: {count} HPAs from seed {start}, good ones by metric"
        f" {dict(good)}, {findings} fields refused, {len(differing)} HPAs differ"
    )
    assert not differing, "\n".join(differing[:10])
    assert all(good[kind] > count / 100 for kind in SOURCES)
