"""What goes to the API server for one pod."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from podscale.kube.client.errors import ApiUnreachable, Forbidden
from tests.pods import pod_of
from tests.unit.vpa.updater.worlds import NOW, vpa
from vpa.capping import LimitRanges
from vpa.updater.cluster.pod_disruptor import PodDisruptor

MARK = "vpaCpuStartupBoost/app"
TARGET = {"cpu": "500m", "memory": "512Mi"}


class Server:
    """Answers with one pod and keeps the patches."""

    def __init__(self, cpu: str, *, is_boosted: bool, refuses: bool = False) -> None:
        self.pod: dict[str, Any] = {
            "metadata": {
                "name": "web-0",
                "namespace": "shop",
                "uid": "1",
                "annotations": {MARK: "{}"} if is_boosted else {"other": ""},
            },
            "spec": {
                "containers": [{"name": "app", "resources": {"requests": {**TARGET, "cpu": cpu}}}]
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.refuses = refuses
        self.is_away = False
        self.patches: list[tuple[str, list[dict[str, Any]]]] = []

    async def request(self, method: str, path: str, **more: Any) -> SimpleNamespace:
        if self.is_away:
            raise ApiUnreachable("timed out", is_timeout=True)
        if method == "PATCH":
            self.patches.append((path.rpartition("/")[2], msgspec.json.decode(more["body"])))
            if self.refuses:
                raise Forbidden(403, "Forbidden", "not now")
        return SimpleNamespace(body=msgspec.json.encode(self.pod))

    @property
    def actor(self) -> PodDisruptor:
        told: Any = SimpleNamespace(event=lambda *_words: None)
        stores: Any = SimpleNamespace(pods=SimpleNamespace(accept=lambda _pod: None))
        api: Any = self
        return PodDisruptor(api, stores, told)

    async def act(self, **more: Any) -> str:
        seen = pod_of(self.pod)
        acted = await self.actor.resize(seen, vpa(), LimitRanges(), NOW, **more)
        return acted.outcome

    async def unmark(self, uid: str = "1") -> None:
        seen = pod_of({**self.pod, "metadata": {**self.pod["metadata"], "uid": uid}})
        await self.actor.resize(seen, vpa(), LimitRanges(), NOW, only_unmark=True)


UID = {"op": "test", "path": "/metadata/uid", "value": "1"}
UNMARKED = {"op": "remove", "path": "/metadata/annotations/vpaCpuStartupBoost~1app"}


async def test_a_boost_is_taken_back_with_its_mark() -> None:
    server = Server("1", is_boosted=True)
    assert await server.act(only_unboost=True) == "done"
    assert [path for path, _ in server.patches] == ["resize", "web-0"]
    assert UNMARKED in server.patches[1][1]


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_boost_that_left_nothing_to_take_back_loses_its_mark(refuses: bool) -> None:
    server = Server("500m", is_boosted=True, refuses=refuses)
    assert await server.act(only_unboost=True) == "nothing"
    assert server.patches == [("web-0", [UID, UNMARKED])]


async def test_a_mark_goes_alone_and_only_from_a_boost_that_was_taken_back() -> None:
    server = Server("500m", is_boosted=True)
    await server.unmark()
    assert server.patches == [("web-0", [UID, UNMARKED])]
    for other in (Server("1", is_boosted=True), Server("500m", is_boosted=False)):
        await other.unmark()
        assert other.patches == []
    server = Server("500m", is_boosted=True)
    await server.unmark(uid="another one of this name")
    assert server.patches == []


async def test_a_mark_of_a_pod_that_cannot_be_read_is_left() -> None:
    server = Server("500m", is_boosted=True)
    server.is_away = True
    await server.unmark()
    assert server.patches == []


async def test_a_pod_whose_boost_somebody_else_has_ended_is_not_resized() -> None:
    server = Server("1", is_boosted=False)
    assert await server.act(only_unboost=True) == "nothing"
    assert server.patches == []
    assert await server.act() == "done"


async def test_a_resize_without_a_change_is_not_sent() -> None:
    server = Server("500m", is_boosted=False)
    assert await server.act() == "nothing"
    assert server.patches == []
