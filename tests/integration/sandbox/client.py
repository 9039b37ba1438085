"""A small client of the sandbox, and small objects."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from tests.kit.apiserver.server import FaultySandbox

PODS = "/api/v1/namespaces/default/pods"


MAPS = "/api/v1/namespaces/default/configmaps"


class Client:
    """A small client that answers with status and decoded body."""

    def __init__(self, server: FaultySandbox, session: aiohttp.ClientSession) -> None:
        self._server = server
        self.session = session

    async def call(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._server.admin_token}"}
        headers.update(options.pop("headers", {}))
        data = None if body is None else json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        url = self._server.url + path
        async with self.session.request(
            method, url, data=data, headers=headers, **options
        ) as answer:
            text = await answer.text()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json and text else text

    @contextlib.asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator["Events"]:
        headers = {"Authorization": f"Bearer {self._server.admin_token}"}
        async with self.session.get(self._server.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield Events(answer)


class Events:
    """The events of one watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, Any]:
        """Return the next event's type and object; ("END", None) after the last."""
        async with asyncio.timeout(5):
            line = await self._answer.content.readline()
        if not line:
            return "END", None
        event = json.loads(line)
        return event["type"], event["object"]


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}
