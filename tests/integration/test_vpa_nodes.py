"""No recommendation whose pod would fit no node: ``--cap-to-nodes`` and its annotation."""

from typing import Any

import pytest

from podscale.core import quantity
from podscale.serving.flags import parse
from tests.integration.test_vpa_recommender import condition, recommending, target
from tests.integration.vpa_stage import Stage, deployment, stage, vpa
from vpa.model.estimation.annotations import VpaSettings
from vpa.model.estimation.recommendation import NodeShape, largest
from vpa.model.recommendations import DeadBand
from vpa.recommender import flags as flags_
from vpa.recommender.flags import Options
from vpa.recommender.node_shapes import read_shapes

ANNOTATION = "vpa.podscale.io/cap-to-nodes"
FAST: dict[str, Any] = {"interval_s": 0.1, "status_band": DeadBand(0.0, 0.0)}


@pytest.fixture
async def small(tmp_path):
    async with stage(tmp_path) as built:
        yield built


def node(name: str, cpu: str, memory: str = "64Gi") -> dict[str, Any]:
    has = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name},
            "status": {"allocatable": has, "capacity": has}}  # fmt: skip


async def busy(small: Stage, annotations: dict[str, str] | None = None) -> None:
    """Two containers that use six cores each."""
    small.usage.cores = 6.0
    wanted = deployment(1)
    spec = wanted["spec"]["template"]["spec"]
    spec["containers"] = [{"name": "main"}, {"name": "side"}]
    small.objects.create("deployments", "default", wanted)
    made = vpa("Off")
    made["metadata"]["annotations"] = annotations or {}
    small.objects.create("verticalpodautoscalers", "default", made)
    await small.until(lambda: small.ready() == 1)


def entries(small: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = small.vpa()["status"]["recommendation"][
        "containerRecommendations"
    ]
    return found


def cores(small: Stage, field: str = "target") -> int:
    return sum(quantity.parse(entry[field]["cpu"]).milli for entry in entries(small))


def only_nodes(small: Stage, *nodes: dict[str, Any]) -> None:
    for each in small.objects.list("nodes"):
        small.objects.delete("nodes", "", each["metadata"]["name"])
    for each in nodes:
        joined(small, each)


def joined(small: Stage, made: dict[str, Any]) -> None:
    small.objects.create("nodes", "", made)
    name = made["metadata"]["name"]
    held = small.objects.get("nodes", "", name)
    small.objects.update("nodes", "", name, {**held, "status": made["status"]}, "status")


async def test_a_pod_is_cut_to_the_largest_node_and_follows_when_a_larger_one_comes(small):
    await busy(small, {ANNOTATION: "existing"})
    only_nodes(small, node("small-1", "2"), node("large-1", "8"))
    async with recommending(small, Options(**FAST), needs_nodes=True):
        await small.until(lambda: target(small) is not None)
        await small.until(lambda: cores(small) <= 8000)
        # Both containers gave up the same share; what they would need stays to be read.
        assert cores(small) >= 7990
        assert cores(small, "uncappedTarget") > 12_000
        told = condition(small, "CappedToNodeSize")
        assert told is not None
        assert "large-1" in told["message"]
        joined(small, node("huge-1", "64"))
        await small.until(lambda: cores(small) > 12_000)
        assert condition(small, "CappedToNodeSize") is None


async def test_off_is_the_default_and_cuts_nothing(small):
    await busy(small)
    only_nodes(small, node("small-1", "2"))
    async with recommending(small, Options(**FAST), needs_nodes=True):
        await small.until(lambda: target(small) is not None)
    assert cores(small) > 12_000
    assert condition(small, "CappedToNodeSize") is None


async def test_a_file_of_shapes_counts_pools_without_a_node(small, tmp_path):
    await busy(small)
    file = tmp_path / "shapes.yaml"
    file.write_text(
        "- {shape: pool-of-none, allocatable: {cpu: 10, memory: 64Gi},"
        " daemonsets: {cpu: 500m, memory: 1Gi}}\n"
        "- {shape: tiny, allocatable: {cpu: 900m, memory: 2Gi}}\n"
    )
    only_nodes(small, node("small-1", "2"))
    shapes = read_shapes(file)
    assert [shape.shape for shape in shapes] == ["pool-of-none"]
    options = Options(**FAST, settings=VpaSettings(cap_to_nodes="file"), shapes=shapes)
    async with recommending(small, options, needs_nodes=True):
        await small.until(lambda: target(small) is not None)
    assert 9490 <= cores(small) <= 9500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "lists no shape"),
        ("- {shape: a, allocatable: {cpu: 1}}", "needs cpu and memory"),
        ("- {shape: a, allocatable: {cpu: one, memory: 1Gi}}", "a: "),
        ("- {shape: a, allocatable: {cpu: 1, memory: 1Gi, gpu: 1}}", "gpu is not known"),
        ("- {name: a}", "shape"),
        ("- [", "while parsing"),
    ],
)
def test_a_bad_file_is_refused_at_start(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "shapes.yaml"
    file.write_text(text)
    problems = flags_.problems(parse([f"--cap-to-nodes={file}"], flags_.TABLE))
    assert any("--cap-to-nodes" in problem and said in problem for problem in problems)


def test_shapes_that_others_contain_do_not_count() -> None:
    wide, tall = NodeShape("wide", 8000, 2**33), NodeShape("tall", 2000, 2**36)
    inside = NodeShape("inside", 2000, 2**33)
    assert {shape.shape for shape in largest([inside, wide, tall])} == {"wide", "tall"}
