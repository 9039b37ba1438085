"""The anchor of a VPA whose target an HPA scales: written before the size that belongs to it, and
right afterwards whatever write a crash comes between.
"""

import json
import time
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from podscale.coordinate.anchor import ANNOTATION, Anchor, anchor_clause, format_anchor, parse
from podscale.coordinate.sizes import REASONS
from podscale.core.metrics import ContainerColumns
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, Forbidden, KubeError
from podscale.kube.client.wire import UNREADABLE_MANAGER, decode, encode
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import Workload
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from tests.unit.vpa.test_stores import NoKinds
from vpa.explain.recommendation import as_published, sentence_of
from vpa.explain.words import explanation
from vpa.model.samples.membership import VpaKey
from vpa.recommender.coordination import WatchedHpas
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.pod_feed import StoredEvent
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores

START = 1_700_000_000.0
HALF_DAY_S = 43_200.0
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


class Crashed(Exception):
    """The process ended here."""


class World:
    """An API server that holds one VPA, and what the watches of a recommender show."""

    user_agent = "podscale-recommender/test"

    def __init__(self, **spec: Any) -> None:
        meta = {"name": "web", "namespace": "shop", "uid": "u-vpa", "resourceVersion": "1"}
        self.vpa: dict[str, Any] = {"metadata": meta, "spec": {"targetRef": TARGET, **spec}}
        self.writes: list[str] = []  # "anchor" and "status", as they went in
        self.crash: tuple[int, str] | None = None  # at which write, "before" or "after" it
        self.has_crashed = False
        self.error: KubeError | None = None  # what writes of the annotation meet
        self.now = START
        self.reason = "NoAnchor"  # of the HPA's condition; empty: it does not coordinate
        self.left_behind: dict[str, Any] | None = None  # the HPA as a part that died wrote it
        self.managers: list[dict[str, str]] = []
        self.replicas, self.asked, self.used = 10, 1000, 0.3
        self.unmeasured = 0  # pods of which no usage is known
        self.uid = "u-web"
        self.lists_hpas = True
        self.is_active = self.has_controller = True
        self.able = "ReadyForNewScale"
        self.budgets: list[dict[str, Any]] = []
        self.notes = {"podscale.io/comfort-replicas": "1-500"}

    async def request(self, method: str, path: str, **given: Any) -> Response:
        if method != "PATCH" or "verticalpodautoscalers/" not in path:
            return Response(200, {}, b'{"items": [], "metadata": {}}')
        kind = "status" if path.endswith("/status") else "anchor"
        if kind == "anchor" and self.error is not None:
            raise self.error
        number = len(self.writes)
        self._crash_at(number, "before")
        for step in json.loads(given["body"]):
            self._apply(step)
        self.vpa["metadata"]["resourceVersion"] = str(number + 2)
        self.writes.append(kind)
        self._crash_at(number, "after")
        return Response(200, {}, json.dumps(self.vpa).encode())

    def _crash_at(self, number: int, when: str) -> None:
        if self.crash == (number, when):
            self.crash, self.has_crashed = None, True
            raise Crashed

    def _apply(self, step: dict[str, Any]) -> None:
        path = [part.replace("~1", "/") for part in step["path"].strip("/").split("/")]
        at = self.vpa
        for part in path[:-1]:
            at = at[part]
        if step["op"] == "test":
            assert at[path[-1]] == step["value"]
        elif step["op"] == "remove":
            del at[path[-1]]
        else:
            at[path[-1]] = step["value"]

    @property
    def anchor(self) -> Anchor | None:
        return parse(self.vpa["metadata"].get("annotations", {}).get(ANNOTATION), self.uid)

    @property
    def targets(self) -> dict[str, int]:
        found = self.vpa.get("status", {}).get("recommendation", {})
        return {
            each["containerName"]: _milli(each["target"]["cpu"])
            for each in found.get("containerRecommendations", ())
        }

    def hpa(self) -> dict[str, Any]:
        if self.left_behind is not None:
            return self.left_behind
        current = {"name": "cpu", "current": {"averageValue": f"{round(self.used * 1000)}m"}}
        reason = "AnchorHeld" if self.reason == "NoAnchor" and self.anchor else self.reason
        conditions = [
            *(
                [
                    {"type": "ScalingActive", "status": "True" if self.is_active else "False"},
                    {"type": "AbleToScale", "status": "True", "reason": self.able},
                ]
                if self.has_controller
                else []
            ),
            *(
                [
                    {
                        "type": "Coordinated",
                        "reason": reason,
                        "message": f"; {anchor_clause(self.anchor)}" if self.anchor else "",
                    }
                ]
                if reason
                else []
            ),
        ]
        return {
            "metadata": {
                "name": "web", "namespace": "shop", "resourceVersion": str(int(self.now)),
                "annotations": self.notes, "creationTimestamp": rfc3339(START),
                "managedFields": self.managers,
            },
            "spec": {
                "scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 500,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}}],
            },
            "status": {
                "currentReplicas": self.replicas, "conditions": conditions,
                "currentMetrics": [{"type": "Resource", "resource": current}],
            },
        }  # fmt: skip


def _milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


class Process:
    """A recommender over a world; ``run`` lets its passes take place."""

    def __init__(self, world: World, containers: tuple[str, ...] = ("app",)) -> None:
        self.world, self.containers = world, containers
        self.measured = containers
        self.is_begun = False
        self.stores = VpaStores(world, NoKinds())  # type: ignore[arg-type]
        self.hpas = WatchedHpas(("",))
        metrics = RecommenderMetrics(CollectorRegistry())
        evictions: Store[StoredEvent] = Store(("",))
        for each in (
            evictions,
            self.stores.limit_ranges,
            self.stores.workloads.controllers,
            self.stores.workloads.cron_jobs,
            *self.stores.workloads.by_kind.values(),
        ):
            fill(each, [], "9")  # fmt: skip
        self.recommender = Recommender(
            world, self.stores, evictions, self, Options(), metrics,  # type: ignore[arg-type]
            hpas=self.hpas, wall=lambda: world.now,
        )  # fmt: skip

    async def answer(self, _questions: Any) -> list[ContainerColumns]:
        names = [f"web-{number}" for number in range(self.world.unmeasured, self.world.replicas)]
        rows = [(pod, container) for pod in names for container in self.measured]
        count = len(rows)
        return [
            ContainerColumns(
                ["shop"] * count, [pod for pod, _ in rows], [each for _, each in rows],
                np.full(count, self.world.used / len(self.containers)), np.full(count, np.nan),
                np.full(count, self.world.now), self.world.now,
            )
        ]  # fmt: skip

    def show(self) -> None:
        """Bring the watches to what there is."""
        world = self.world
        fill(self.stores.vpas, [decode(encode(world.vpa), StoredVpa)], "9")
        meta = {"name": "web", "namespace": "shop", "uid": world.uid, "resourceVersion": "1"}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "replicas": world.replicas}
        web = decode(encode({"metadata": meta, "spec": spec}), Workload)
        fill(self.stores.workloads.by_kind["Deployment"], [web], "9")
        each = {"cpu": f"{world.asked // len(self.containers)}m"} if world.asked else {}
        pods = [
            {
                "metadata": {"name": f"web-{number}", "namespace": "shop", "uid": f"p{number}",
                             "resourceVersion": "1", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": name, "resources": {"requests": each}}
                                        for name in self.containers]},
                "status": {"phase": "Running",
                           "conditions": [{"type": "Ready", "status": "True"}]},
            }
            for number in range(world.replicas)
        ]  # fmt: skip
        fill(self.stores.pods, [decode(encode(pod), Pod) for pod in pods], "9")
        budgets = [decode(encode(each), PodDisruptionBudget) for each in world.budgets]
        fill(self.stores.budgets, budgets, "9")
        if world.lists_hpas:
            for (_, store), found in zip(self.hpas._resources, ([world.hpa()], []), strict=True):
                fill(store, [decode(encode(each), Autoscaler) for each in found], "9")

    async def run(self, passes: int, every_s: float = 60.0) -> None:
        for _ in range(passes):
            self.show()
            if not self.is_begun:
                self.is_begun = True
                await self.recommender._remember()
            self.world.now += every_s
            await self.recommender.once()


async def settled(world: World, **given: Any) -> Process:
    """Return a recommender that has watched for more than half a day."""
    process = Process(world, **given)
    await process.run(60, HALF_DAY_S / 50)
    return process


async def test_an_anchor_is_adopted_before_anything_is_published():
    world = World()
    await Process(world).run(1)
    assert world.writes == ["anchor", "status"]
    assert world.anchor == Anchor(1000, 1000, "u-web")
    assert world.targets == {"app": 1000}


async def test_the_request_moves_once_and_its_anchor_with_it():
    world = World()
    await settled(world)
    anchor = world.anchor
    assert anchor is not None
    assert (anchor.milli, anchor.moved) == (1000, 0)
    assert 350 <= anchor.size <= 450
    assert sum(world.targets.values()) == anchor.size
    assert world.writes.count("anchor") == 2


async def test_explanations_name_the_hpa_and_the_anchor():
    world = World()
    process = Process(world)
    await process.run(3)
    key = VpaKey("shop", "web")
    standing = process.recommender.standing(key)
    assert "HPA web" in standing.anchor
    assert "1000m" in standing.anchor
    vpa = process.stores.vpa(key)
    assert vpa is not None
    known = explanation(["PercentileOfUsage"], [], {"value": "400m"})
    told = as_published(known, vpa, "app", "cpu", standing)
    assert (told.facts["held_by"], told.decision["amount"]) == ("Anchor", 1000)
    assert "HPA web" in sentence_of(told.facts, "400m")
    assert "anchor" in told.change
    world.reason = ""
    await process.run(1)
    assert process.recommender.standing(key).anchor == ""


async def test_bounds_hold_the_size_that_stays():
    world = World()
    await Process(world).run(30)
    (entry,) = world.vpa["status"]["recommendation"]["containerRecommendations"]
    bounds = [_milli(entry[name]["cpu"]) for name in ("lowerBound", "target", "upperBound")]
    assert bounds == sorted(bounds)
    assert _milli(entry["uncappedTarget"]["cpu"]) < entry_target(entry)


def entry_target(entry: dict[str, Any]) -> int:
    return _milli(entry["target"]["cpu"])


async def test_several_containers_share_the_size():
    world = World()
    await settled(world, containers=("app", "proxy"))
    assert world.anchor is not None
    assert sum(world.targets.values()) == world.anchor.size
    assert set(world.targets) == {"app", "proxy"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(2))
@pytest.mark.parametrize("is_move", [False, True], ids=["adoption", "move"])
async def test_a_crash_at_any_write_leaves_anchor_and_size_together(when, nth, is_move):
    calm = World()
    await settled(calm)
    first = [place for place, kind in enumerate(calm.writes) if kind == "anchor"][is_move]
    assert calm.writes[first + 1] == "status"
    world = World()
    world.crash = (first + nth, when)
    process, sizes = Process(world), {1000}
    for _ in range(60):
        await process.run(1, HALF_DAY_S / 50)
        if world.has_crashed:  # the pass ended there, and another process takes over
            process, world.has_crashed = Process(world), False
        if world.anchor is not None:
            sizes.add(world.anchor.size)
        assert sum(world.targets.values()) in sizes | {0}, "a size without its anchor"
    assert world.crash is None
    assert world.anchor is not None
    assert sum(world.targets.values()) == world.anchor.size
    assert world.anchor.milli == 1000


async def test_an_anchor_that_cannot_be_written_holds_its_size_back():
    world = World()
    world.error = Forbidden(403, "Forbidden", "may not patch")
    await Process(world).run(3)
    assert (world.anchor, world.targets) == (None, {})
    world.error = ApiUnreachable("away")
    await Process(world).run(2)
    assert world.targets == {}


async def test_before_hpas_are_listed_what_was_published_stands():
    world = World()
    await Process(world).run(3)
    assert world.targets == {"app": 1000}
    world.lists_hpas = False
    await Process(world).run(20)
    assert world.targets == {"app": 1000}


async def test_where_hpas_may_not_be_listed_the_vpa_goes_its_own_way():
    world = World()
    world.lists_hpas = False
    process = Process(world)
    error = Forbidden(403, "Forbidden", "no")
    for _, store in process.hpas._resources:
        store.apply(WatchBroken("no", error), scope="", now=time.monotonic())
    await process.run(3)
    assert "annotations" not in world.vpa["metadata"]
    assert world.targets["app"] < 1000


@pytest.mark.parametrize("reason", ["", "TwoVpas", "VpaOff", "NoUtilizationTarget"])
async def test_an_hpa_that_does_not_coordinate_changes_nothing(reason):
    world = World()
    world.reason = reason
    await Process(world).run(3)
    assert world.writes[0] == "status"
    assert "annotations" not in world.vpa["metadata"]


@pytest.mark.parametrize("manager", ["kube-controller-manager", UNREADABLE_MANAGER])
async def test_a_condition_that_was_left_behind_does_not_count(manager):
    world = World()
    world.managers = [
        {"manager": "podscale-hpa", "subresource": "status", "time": "2026-01-01T00:00:00Z"},
        {"manager": manager, "subresource": "status",
         "time": "2026-01-02T00:00:00Z"},
    ]  # fmt: skip
    await Process(world).run(3)
    assert "annotations" not in world.vpa["metadata"]


async def test_a_workload_made_anew_gets_an_anchor_of_its_own():
    world = World()
    await Process(world).run(2)
    world.uid, world.asked = "u-anew", 2000
    await Process(world).run(2)
    assert world.anchor == Anchor(2000, 2000, "u-anew")


async def test_pods_without_a_request_get_one_first():
    world = World()
    world.asked = 0
    await Process(world).run(2)
    assert "annotations" not in world.vpa["metadata"]
    assert world.targets["app"] > 0


async def test_what_others_wrote_into_the_annotation_is_replaced():
    world = World()
    world.vpa["metadata"]["annotations"] = {ANNOTATION: "{", "mine": "kept"}
    await Process(world).run(1)
    assert world.anchor == Anchor(1000, 1000, "u-web")
    assert world.vpa["metadata"]["annotations"]["mine"] == "kept"


async def test_a_smaller_pod_is_grown_without_a_day():
    world = World()
    world.vpa["metadata"]["annotations"] = {ANNOTATION: format_anchor(Anchor(1000, 100, "u-web"))}
    world.asked = 100
    await Process(world).run(60)
    assert world.anchor is not None
    assert world.anchor.size > 300
    assert world.anchor.milli == 1000


async def test_an_hpa_that_starts_again_keeps_its_pair():
    world = World()
    process = await settled(world)
    before = world.anchor, world.targets
    world.reason = "VpasUnknown"
    await process.run(3)
    assert (world.anchor, world.targets) == before
    world.reason = "NoAnchor"
    await process.run(1)
    seen = process.recommender.standing(VpaKey("shop", "web")).anchor
    assert REASONS["DayNotSeen"] not in seen, "what was seen of the load is kept"


async def test_a_vpa_that_the_hpa_has_not_seen_yet_begins_with_an_anchor():
    world = World()
    world.reason = "NoVpa"
    await settled(world)
    assert world.writes[:2] == ["anchor", "status"]
    assert world.anchor == Anchor(1000, 1000, "u-web")


async def test_a_vpa_that_is_off_has_no_pair_whatever_the_hpa_saw_last():
    world = World(updatePolicy={"updateMode": "Off"})
    await Process(world).run(3)
    assert "annotations" not in world.vpa["metadata"]
    assert world.targets["app"] < 1000


@pytest.mark.parametrize(
    ("notes", "is_active"),
    [({"podscale.io/paused": "true"}, True), ({}, False)],
    ids=["paused", "no-metrics"],
)
async def test_an_hpa_that_does_not_act_moves_no_anchor(notes, is_active):
    world = World()
    world.notes |= notes
    world.is_active = is_active
    await settled(world)
    assert world.anchor == Anchor(1000, 1000, "u-web")
    assert world.targets == {"app": 1000}


async def test_a_dead_hpa_part_has_no_load_of_now():
    """Its status tells of 0.3 cores a pod, and they use 0.9 by now."""
    world = World()
    process = Process(world)
    await process.run(49, HALF_DAY_S / 50)
    world.left_behind, world.used = world.hpa(), 0.9
    await process.run(4, HALF_DAY_S / 50)
    assert world.targets == {"app": 1000}


async def test_days_that_a_dead_hpa_part_left_behind_are_forgotten():
    world = World()
    process = await settled(world)
    key, unseen = VpaKey("shop", "web"), REASONS["DayNotSeen"]
    assert unseen not in process.recommender.standing(key).anchor
    world.left_behind, world.used = world.hpa(), 0.2
    await process.run(6, HALF_DAY_S / 50)
    assert unseen in process.recommender.standing(key).anchor


async def test_no_anchor_moves_before_the_hpa_has_followed_the_last():
    """Too many pods say nothing of the anchor while nobody removes them."""
    world = World()
    world.notes |= {"podscale.io/comfort-replicas": "2-4"}
    process = Process(world)
    while world.anchor is None or world.anchor.milli == 1000:
        before = world.hpa()
        await process.run(1, 3000.0)
    key, idle = VpaKey("shop", "web"), REASONS["HorizontalIdle"]
    world.left_behind = before
    await process.run(1)
    assert idle in process.recommender.standing(key).anchor
    world.left_behind = None
    await process.run(1)
    assert idle not in process.recommender.standing(key).anchor


async def test_a_rescale_that_a_window_holds_back_is_waited_for():
    world = World()
    world.able = "ScaleDownStabilized"
    process = await settled(world)
    assert world.anchor == Anchor(1000, 1000, "u-web")
    world.able = "ReadyForNewScale"
    await process.run(1, HALF_DAY_S / 50)
    assert world.anchor != Anchor(1000, 1000, "u-web")


async def test_pods_become_smaller_when_there_are_more_of_them():
    world = World()
    world.used = 0.8
    await Process(world).run(1)
    moved = Anchor(500, 400, "u-web", int(world.now), int(world.now))
    world.vpa["metadata"]["annotations"][ANNOTATION] = format_anchor(moved)
    await Process(world).run(5)  # nobody makes any
    assert world.targets == {"app": 1000}
    world.used, world.replicas = 0.3, 27
    await Process(world).run(15)
    assert world.targets == {"app": 400}


async def test_pods_that_are_not_measured_carry_no_load():
    world = World()
    world.used, world.unmeasured = 0.8, 7
    await Process(world).run(1)
    moved = Anchor(500, 400, "u-web", int(world.now), int(world.now))
    world.vpa["metadata"]["annotations"][ANNOTATION] = format_anchor(moved)
    await Process(world).run(15)
    assert world.targets == {"app": 1000}, "2.4 of 8 cores were measured, and nobody made a pod"
    world.used = 0.3
    await Process(world).run(15)
    assert world.targets == {"app": 400}


async def test_a_vpa_of_another_recommender_is_left_alone(capsys):
    world = World(recommenders=[{"name": "other"}])
    await Process(world).run(2)
    assert world.writes == []
    assert "one failed" not in capsys.readouterr().out


async def test_a_container_without_samples_keeps_its_part():
    world = World()
    await settled(world, containers=("app", "proxy"))
    before, world.asked = world.targets, sum(world.targets.values())
    process = Process(world, containers=("app", "proxy"))
    process.measured = ("app",)
    await process.run(3)
    assert world.targets == before


async def test_an_anchor_that_nobody_holds_to_is_removed():
    world = World()
    process = Process(world)
    await process.run(2)
    world.reason = ""
    await process.run(1)
    assert world.vpa["metadata"]["annotations"] == {}
    world.reason, world.asked = "NoAnchor", 600
    await Process(world).run(1)
    assert world.anchor == Anchor(600, 600, "u-web"), "what pods request by now"


async def test_where_hpas_may_not_be_listed_for_a_moment_an_anchor_stands():
    world = World()
    await Process(world).run(2)
    world.lists_hpas = False
    process = Process(world)
    for _, store in process.hpas._resources:
        store.apply(WatchBroken("no", Forbidden(403, "Forbidden", "no")), scope="", now=0.0)
    await process.run(5)
    assert (world.anchor, world.targets) == (Anchor(1000, 1000, "u-web"), {"app": 1000})


async def test_after_a_crash_nothing_is_published_before_hpas_are_listed():
    world = World()
    world.crash = (0, "after")
    await Process(world).run(1)
    world.lists_hpas = False
    process = Process(world)
    await process.run(3)
    assert world.writes == ["anchor"]
    world.lists_hpas = True
    await process.run(1)
    assert world.targets == {"app": 1000}


async def test_the_comfort_band_begins_above_what_a_budget_keeps():
    world = World()
    del world.notes["podscale.io/comfort-replicas"]
    meta = {"name": "web", "namespace": "shop", "resourceVersion": "1"}
    selector = {"matchLabels": {"app": "web"}}
    world.budgets = [{"metadata": meta, "spec": {"minAvailable": 20, "selector": selector}}]
    await Process(world).run(250, 3000.0)
    assert world.anchor is not None
    assert world.anchor.milli <= 1000 * 10 / 21
    assert world.targets != {"app": world.anchor.size}, "there are no more pods yet"


async def test_a_new_hpa_that_asks_for_it_is_waited_for():
    world = World()
    world.notes["podscale.io/coordinate"] = "on"
    world.reason, world.has_controller = "", False
    process = Process(world)
    await process.run(2, 30.0)
    assert world.writes == []
    world.reason, world.has_controller = "NoVpa", True
    await process.run(1)
    assert world.anchor == Anchor(1000, 1000, "u-web")
    assert world.targets == {"app": 1000}


@pytest.mark.parametrize("has_controller", [False, True], ids=["nobody", "somebody-else"])
async def test_an_hpa_that_nobody_of_ours_acts_on_is_not_waited_for(has_controller):
    world = World()
    world.notes["podscale.io/coordinate"] = "on"
    world.reason, world.has_controller = "", has_controller
    await Process(world).run(4)
    assert "annotations" not in world.vpa["metadata"]
    assert world.targets["app"] < 1000
