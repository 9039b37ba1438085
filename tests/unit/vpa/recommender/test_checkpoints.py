"""Checkpoint objects that are there before ours, or that we do not know to be."""

import json
from typing import Any

import pytest

from podscale.core.selectors import selector
from podscale.kube.client.api import Api, Response
from podscale.kube.client.errors import ApiUnreachable, KubeError, ObjectNotFound, WriteConflict
from tests.unit.vpa.model.worlds import NOW, WEB, usage, vpa, web
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.samples.checkpoints import Checkpoint, HistogramCheckpoint, to_wire
from vpa.recommender.history.checkpoints import Checkpoints

APP: Named = (WEB, "app")
LARGE = HistogramCheckpoint({60: 10000}, 100.0, NOW)
LEARNED = Checkpoint(LARGE, LARGE, NOW - 86400.0, NOW, 1440, NOW)
Json = dict[str, Any]


class Shelf:
    """An API server that has checkpoints of one namespace and nothing else."""

    user_agent = "test"

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.swallows_answers = False  # of creations: they happen, and nobody is told
        self.is_down = False
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        self.asked.append(method)
        if self.is_down:
            raise ApiUnreachable("the deadline passed", is_timeout=True)
        name = path.rpartition("verticalpodautoscalercheckpoints")[2].strip("/")
        if method == "POST":
            made = json.loads(more["body"])
            name = made["metadata"]["name"]
            if name in self.objects:
                raise WriteConflict(409, "AlreadyExists", "there is one")
            self.objects[name] = made
            if self.swallows_answers:
                raise ApiUnreachable("the deadline passed", is_timeout=True)
            return self._answer(made)
        if not name:
            return self._answer({"metadata": {}, "items": list(self.objects.values())})
        if name not in self.objects:
            raise ObjectNotFound(404, "NotFound", "there is none")
        if method == "DELETE":
            return self._answer(self.objects.pop(name))
        if method == "PATCH":
            for step in json.loads(more["body"]):
                if step["path"] == "/status":
                    self.objects[name]["status"] = step["value"]
        return self._answer(self.objects[name])

    def put(self, name: str, spec: Json, status: Json | None = None) -> None:
        """Put an object of another process there."""
        meta = {"name": name, "namespace": "shop", "resourceVersion": "1"}
        self.objects[name] = {
            "metadata": meta, "spec": spec, "status": status or to_wire(LEARNED)
        }  # fmt: skip

    def samples(self, name: str = "web-app") -> int:
        """Return how many samples the stored checkpoint has."""
        return int(self.objects[name]["status"]["totalSamplesCount"])

    def stream(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError

    def _answer(self, body: Json) -> Response:
        return Response(200, {}, json.dumps(body).encode())


SPEC = {"vpaObjectName": "web", "containerName": "app"}


class World:
    """A model with a VPA and a pod, and its checkpoints."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.cluster = ClusterModel()
        api: Api = self.shelf
        self.checkpoints = Checkpoints(api, ("",))
        web(self.cluster, "web-0")
        self.at = NOW

    async def load(self) -> int:
        """Begin as a new leader begins."""
        return await self.checkpoints.load(self.cluster, self.at)

    async def passes(self) -> bool:
        """Run what a pass does for the checkpoint; return whether it was written."""
        self.at += 60.0
        await self.checkpoints.load_late(self.cluster, self.at)
        self.cluster.take(usage(self.at, 0.05, 2e8))
        ((checkpoint, extra),) = self.cluster.checkpoints([APP], self.at)
        return await self.checkpoints.write(APP, checkpoint, extra)


async def test_a_creation_whose_answer_was_lost_is_written_on() -> None:
    world = World()
    await world.load()
    world.shelf.swallows_answers = True
    with pytest.raises(ApiUnreachable):
        await world.passes()
    world.shelf.swallows_answers = False
    assert await world.passes()
    assert world.shelf.samples() == 2, "our own: nothing to load"
    assert await world.passes()
    assert world.shelf.samples() == 3


async def test_one_that_somebody_stored_meanwhile_is_loaded_before_it_is_written() -> None:
    world = World()
    await world.load()
    world.shelf.put("web-app", SPEC)
    assert not await world.passes()
    assert world.shelf.samples() == 1440
    assert await world.passes()
    assert world.shelf.samples() == 1442


async def test_one_whose_vpa_comes_late_is_loaded_before_it_is_written() -> None:
    world = World()
    world.cluster.remove_vpa(WEB, NOW)
    world.shelf.put("web-app", SPEC)
    assert await world.load() == 0
    await world.checkpoints.load_late(world.cluster, NOW)
    world.cluster.put_vpa(vpa(), selector.parse("app=web"), NOW)
    world.shelf.is_down = True
    assert not await world.passes(), "what cannot be read is not overwritten"
    world.shelf.is_down = False
    assert world.shelf.samples() == 1440
    assert await world.passes()
    assert world.shelf.samples() == 1442


async def test_orphans_are_not_asked_for() -> None:
    world = World()
    world.shelf.put("gone-app", {"vpaObjectName": "gone", "containerName": "app"})
    await world.load()
    world.shelf.asked.clear()
    await world.checkpoints.load_late(world.cluster, NOW)
    assert world.shelf.asked == []


async def test_one_that_went_before_it_was_loaded_is_made_anew() -> None:
    world = World()
    await world.load()
    world.shelf.put("web-app", SPEC)
    assert not await world.passes()
    world.shelf.objects.clear()
    assert await world.passes()
    assert world.shelf.samples() == 2


@pytest.mark.parametrize("knows", [True, False], ids=["listed", "met"])
@pytest.mark.parametrize(
    "spec", [{}, "damaged", {"vpaObjectName": "web-a", "containerName": "pp"}],
    ids=["empty", "no-object", "another-pair"],
)  # fmt: skip
async def test_a_name_that_is_not_ours_is_left_alone(spec: Any, *, knows: bool) -> None:
    world = World()
    if knows:
        world.shelf.put("web-app", spec)
    await world.load()
    if not knows:
        world.shelf.put("web-app", spec)
    assert await world.passes()
    assert await world.passes()
    assert world.shelf.samples("web-app") == 1440
    (other,) = world.shelf.objects.keys() - {"web-app"}
    assert world.shelf.samples(other) == 2
    assert world.shelf.asked.count("POST") == (1 if knows else 2)
    again = World()
    again.shelf = world.shelf
    again.checkpoints = Checkpoints(world.shelf, ("",))
    assert await again.load() == 1, "a restart finds it by its spec"


async def test_without_any_name_left_a_write_fails_and_ends() -> None:
    world = World()
    await world.load()
    world.shelf.put("web-app", {})
    assert await world.passes()
    (other,) = world.shelf.objects.keys() - {"web-app"}
    world = World()
    await world.load()
    world.shelf.put("web-app", {})
    world.shelf.put(other, {})
    with pytest.raises(KubeError):
        await world.passes()


@pytest.mark.parametrize(
    "spec",
    [
        {"vpaObjectName": "gone", "containerName": "app"},
        {"vpaObjectName": "gone"},
        {"vpaObjectName": "gone", "containerName": ""},
        {"vpaObjectName": "gone", "containerName": None},
        {"vpaObjectName": "gone", "containerName": 7},
    ],
)
async def test_orphans_are_collected_whatever_they_say_of_their_container(spec: Json) -> None:
    world = World()
    world.shelf.put("web-app", SPEC)
    world.shelf.put("orphan", spec)
    await world.load()
    assert await world.checkpoints.collect(world.cluster.vpas.__contains__) == 1
    assert list(world.shelf.objects) == ["web-app"]
