"""What goes to the API server for one pod."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from podscale.kube.errors import Forbidden
from tests.unit.vpa.updater.worlds import NOW, vpa
from vpa.capping.processor import LimitRanges
from vpa.model.objects import Pod, decode
from vpa.updater.act import Actor

MARK = "vpaCpuStartupBoost/app"
TARGET = {"cpu": "500m", "memory": "512Mi"}


class Server:
    """Answers with one pod and keeps the patches."""

    def __init__(self, cpu: str, *, is_boosted: bool, refuses: bool = False) -> None:
        self.pod = {
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
        self.patches: list[tuple[str, list[dict[str, Any]]]] = []

    async def request(self, method: str, path: str, **more: Any) -> SimpleNamespace:
        if method == "PATCH":
            self.patches.append((path.rpartition("/")[2], msgspec.json.decode(more["body"])))
            if self.refuses:
                raise Forbidden(403, "Forbidden", "not now")
        return SimpleNamespace(body=msgspec.json.encode(self.pod))

    async def act(self, **more: Any) -> str:
        told: Any = SimpleNamespace(event=lambda *_words: None)
        stores: Any = SimpleNamespace(pods=SimpleNamespace(accept=lambda _pod: None))
        api: Any = self
        seen = decode(self.pod, Pod)
        acted = await Actor(api, stores, told).resize(seen, vpa(), LimitRanges(), NOW, **more)
        return acted.outcome


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


async def test_a_pod_whose_boost_somebody_else_has_ended_is_not_resized() -> None:
    server = Server("1", is_boosted=False)
    assert await server.act(only_unboost=True) == "nothing"
    assert server.patches == []
    assert await server.act() == "done"


async def test_a_resize_without_a_change_is_not_sent() -> None:
    server = Server("500m", is_boosted=False)
    assert await server.act() == "nothing"
    assert server.patches == []
