"""``podscale nodes off``: what is taken away, what is refused, and what is said of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from podscale.cli.demo.scenes import deploy
from podscale.nodes.cluster.patches import TAINT_KEY
from tests.kit.apiserver.faults import Fault
from tests.kit.apiserver.server import FaultySandbox
from tests.kit.commands import podscale

NAMESPACE = "podscale-ballast"
HEADROOM = Path(__file__).parents[3] / "config/rbac/nodes-headroom/headroom.yaml"


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    """The objects of the demo, whose node has the taint of mode taint."""
    async with FaultySandbox() as running:
        running.objects.put({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
            "spec": {"taints": [{"key": TAINT_KEY, "effect": "NoSchedule"}]},
        })  # fmt: skip
        load = SimpleNamespace(set=lambda *_: None, queues={})
        deploy(SimpleNamespace(server=running, load=load), 0.0)  # type: ignore[arg-type]
        yield running


async def off(server: FaultySandbox, *words: str) -> tuple[int | None, str]:
    """Return how ``nodes off`` ended and what it said."""
    done = await asyncio.to_thread(podscale, "nodes", "off", "--server", server.url, *words)
    return done.returncode, done.stdout + done.stderr


def taints(server: FaultySandbox) -> list[Any]:
    return list((server.objects.get("nodes", "", "a")["spec"]).get("taints") or ())


async def test_the_demos_ballast_is_taken_away(server: FaultySandbox):
    code, said = await off(server)
    assert (code, taints(server)) == (0, [])
    assert server.objects.list("pods", NAMESPACE) == []
    assert f"found namespace/{NAMESPACE}; taints removed: 1" in said
    assert "no ballast and no headroom is left" in said
    code, said = await off(server)  # again
    assert code == 0
    assert f"found no namespace/{NAMESPACE} and no headroom; taints removed: 0" in said


async def test_the_policy_of_headroom_goes_with_it(server: FaultySandbox):
    objects = list(yaml.safe_load_all(HEADROOM.read_text()))
    policies = [each for each in objects if each["kind"].startswith("ValidatingAdmissionPolicy")]
    for each in policies:
        server.objects.put(each)
    code, said = await off(server)
    assert code == 0
    assert "validatingadmissionpolicies/podscale-headroom" in said
    left = [server.objects.list(plural, "") for plural in (
        "validatingadmissionpolicies", "validatingadmissionpolicybindings")]  # fmt: skip
    assert left == [[], []]
    assert len(policies) == 2


async def test_a_mistyped_namespace_is_refused_and_where_ballast_is_named(server: FaultySandbox):
    code, said = await off(server, "--ballast-namespace", "nope")
    assert code == 1
    assert "there is no namespace/nope, but there are pods labelled" in said
    assert f"nothing was changed. --ballast-namespace={NAMESPACE} takes these away" in said
    assert len(taints(server)) == 1


async def test_ballast_that_is_somewhere_else_as_well_is_left_and_named(server: FaultySandbox):
    pod = server.objects.get("pods", NAMESPACE, "ballast-a")
    server.objects.put({**pod, "metadata": {**pod["metadata"], "namespace": "shop", "uid": ""}})
    code, said = await off(server)
    assert code == 1
    assert "still there: pods labelled app.kubernetes.io/component=ballast in namespace" in said
    assert "shop (1)" in said


async def test_taints_that_stay_are_named(server: FaultySandbox):
    server.faults.add(Fault(kind="status", verbs=("patch",), resource="nodes", code=403))
    code, said = await off(server)
    assert code == 1
    assert "still there: taints of nodes (1)" in said
    assert len(taints(server)) == 1


async def test_a_namespace_that_is_not_ours_is_refused_before_anything_is_done(
    server: FaultySandbox,
):
    code, said = await off(server, "--ballast-namespace", "shop")
    assert code == 1
    assert "namespace/shop is not ours" in said
    assert "nothing was changed" in said
    assert "kubectl label namespace/shop app.kubernetes.io/component=ballast" in said
    assert len(taints(server)) == 1
    assert server.objects.find("namespaces", "", "shop") is not None


@pytest.mark.parametrize(("word", "option"), [("off", "--timeout"), ("watchdog", "--patience")])
def test_help_names_the_subcommands_whose_options_all_mean_something(word: str, option: str):
    texts = [podscale(*words).stdout for words in (("nodes", "--help"), ("nodes", word, "--help"))]
    assert f"podscale nodes {word} [options]" in texts[0]
    assert option in texts[1]
    assert "--all-namespaces" not in texts[1]
