"""What happened to the objects of one namespace, in order and with the time it was told."""

import http.client
import json
import socket
import threading
import time
from bisect import bisect_right
from typing import Any, Self

from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK

Version = tuple[float, dict[str, Any] | None]  # told at; None: deleted


class History:
    """Every version of every object of one kind, by name, oldest first."""

    def __init__(self) -> None:
        self.told: dict[str, list[Version]] = {}

    def note(self, name: str, at: float, state: dict[str, Any] | None) -> None:
        self.told.setdefault(name, []).append((at, state))

    def versions(self, name: str, since: float, until: float) -> list[dict[str, Any] | None]:
        """Return the state at ``since`` and every later one that was told up to ``until``."""
        told = self.told.get(name, [])
        first = bisect_right(told, since, key=lambda each: each[0])
        last = bisect_right(told, until, key=lambda each: each[0])
        start = told[first - 1][1] if first else None
        return [start, *(state for _, state in told[first:last])]


class Watch:
    """Lists, then watches in a thread; ``live`` is the present, ``history`` every version."""

    def __init__(self, plane: Plane, path: str) -> None:
        self._client = plane.admin
        self._path = path
        self.live: dict[str, dict[str, Any]] = {}
        self.history = History()
        self.failure: BaseException | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"watch {path}")

    def __enter__(self) -> Self:
        listed = self._client.get(self._path)
        for each in listed["items"]:
            self._note("ADDED", each)
        self._connection = http.client.HTTPSConnection(
            LOOPBACK, self._client.identity.port, context=self._client._tls, timeout=900
        )
        version = listed["metadata"]["resourceVersion"]
        query = f"watch=1&timeoutSeconds=3600&resourceVersion={version}"
        self._connection.request("GET", f"{self._path}?{query}")
        # The socket is the response's alone once the server says that it will close.
        self._socket = self._connection.sock
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if isinstance(self._socket, socket.socket):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        try:
            answer = self._connection.getresponse()
            while line := answer.readline():
                event = json.loads(line)
                self._note(event["type"], event["object"])
            if not self._is_over:
                raise ConnectionError(f"the watch of {self._path} ended early")
        except (OSError, ValueError, http.client.HTTPException, KeyError) as failure:
            if not self._is_over:
                self.failure = failure

    def _note(self, kind: str, found: dict[str, Any]) -> None:
        name = found["metadata"]["name"]
        is_gone = kind == "DELETED"
        self.history.note(name, time.time(), None if is_gone else found)
        if is_gone:
            self.live.pop(name, None)
        else:
            self.live[name] = found
