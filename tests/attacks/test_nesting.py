"""Objects that nest as deep as kube-apiserver stores end no part, neither listed nor watched."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from podscale.cli.parts import KINDS
from podscale.sandbox.http import bodies
from podscale.sandbox.objects import storage
from podscale.sandbox.objects.objects import SandboxObjects
from tests.attacks.test_vpa_webhook import answered, patched, pod, review, sizing
from tests.integration.launched import stub_prometheus
from tests.integration.test_processes import Ground, until
from tests.integration.vpa_stage import stage
from tests.kit.nested import expanded, managed, nested
from vpa.admission.part import AdmissionPart

TEMPLATE = {
    "metadata": {"labels": {"app": "deep"}},
    "spec": {"containers": [{"name": "main", "image": "x"}]},
}
WORKLOAD = {"replicas": 1, "selector": {"matchLabels": {"app": "deep"}}, "template": TEMPLATE}
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def objects(name: str, levels: int) -> list[dict[str, Any]]:
    """Return what somebody with ``edit`` in a namespace may write, and a node."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    about = {"kind": "Pod", "name": name, "namespace": "default"}
    return [
        {"kind": "Pod", "apiVersion": "v1", "spec": TEMPLATE["spec"]},
        {"kind": "ConfigMap", "apiVersion": "v1", "data": {}},
        {"kind": "Node", "apiVersion": "v1"},
        {"kind": "Event", "apiVersion": "v1", "involvedObject": about, "reason": "Deep"},
        {"kind": "Deployment", "apiVersion": "apps/v1", "spec": WORKLOAD},
        {"kind": "ReplicaSet", "apiVersion": "apps/v1", "spec": WORKLOAD},
        {"kind": "StatefulSet", "apiVersion": "apps/v1", "spec": WORKLOAD},
        {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
         "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [METRIC]}},
        {"kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1",
         "spec": {"targetRef": target, "other": [nested(levels)]}},
    ]  # fmt: skip


def put(stored: SandboxObjects, name: str, levels: int) -> None:
    for each in objects(name, levels):
        meta = {"name": name, "labels": {"app": "deep"}, "managedFields": managed(levels)}
        if each["kind"] != "Node":
            meta["namespace"] = "default"
        stored.put({**each, "metadata": meta})


@pytest.fixture
async def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    # Python cannot hold such objects: they take their shape as they leave the API server.
    for module in (storage, bodies):
        written = module._encode
        monkeypatch.setattr(module, "_encode", lambda value, to=written: expanded(to(value)))
    with stub_prometheus() as (address, _):
        made = Ground(tmp_path, address)
        async with made.server:
            made.prepare()
            yield made


@pytest.mark.parametrize("levels", [3_000, 9_995])
@pytest.mark.parametrize("part", KINDS)
async def test_no_part_ends(part: str, levels: int, ground: Ground) -> None:
    stored = ground.server.objects
    put(stored, "listed", levels)
    async with ground.running(part) as composed:
        await asyncio.sleep(0.5)
        put(stored, "watched", levels)
        stored.put({"kind": "Pod", "apiVersion": "v1", "spec": TEMPLATE["spec"],
                    "metadata": {"name": "other", "namespace": "default"}})  # fmt: skip
        if composed.shared is not None and part != "nodes":
            pods = composed.shared.pods
            for name in ("listed", "watched", "other"):
                await until(lambda name=name: pods.exists("default", name))
        await asyncio.sleep(1.0)
        admission, health = composed.parts.get("admission"), composed.health
        if isinstance(admission, AdmissionPart):
            await until(admission.stores.is_current)
        if health is not None:
            assert health.report("livez").status == 200
            await until(lambda: health.report("readyz").status == 200)


@pytest.mark.parametrize("levels", [3_000, 9_995])
async def test_a_review_lets_the_pod_through(levels: int, tmp_path: Path) -> None:
    deep = pod(1)
    deep["metadata"]["managedFields"] = managed(levels)
    async with (
        stage(tmp_path) as small,
        sizing(small, tmp_path, 1) as served,
        aiohttp.ClientSession() as session,
    ):
        for each in (deep, pod(1, status=nested(levels)), pod(1, other=[nested(levels)])):
            response = await answered(session, served, expanded(review(each)))
            assert (response["allowed"], patched(response)) == (True, 1)
        wrong = pod(1) | {"spec": {"containers": nested(levels)}}
        response = await answered(session, served, expanded(review(wrong)))
        assert (response["allowed"], patched(response)) == (True, 0)
