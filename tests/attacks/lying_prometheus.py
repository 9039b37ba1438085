"""A Prometheus of some pods; while it lies, it floods its lists and never ends an evil answer.

A program (``python -m tests.attacks.lying_prometheus PORT NAMESPACE OTHER POD…``), so that its
work is not that of the test; ``PUT /lies`` with ``1`` or ``0`` says whether it lies. What it is
asked about ``evil_total`` it then answers in turn with interim answers without end, with a sample
of an impossible time, and with a redirect to another origin.
"""

import contextlib
import http.client
import http.server
import itertools
import json
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.tools.process import LOOPBACK, Program, free_port, wait_until

SHAPES = 3_000  # lists of label names under one name
NAMES = 2_000
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000
_IMPOSSIBLE_S = 1e15  # of the year 31690708


class LyingPrometheus:
    """The process; a context manager."""

    def __init__(self, directory: Path, own: str, other: str, pods: Sequence[str]) -> None:
        self._port = free_port()
        self.url = f"http://{LOOPBACK}:{self._port}"
        self._program = Program(
            "lying-prometheus",
            [sys.executable, "-m", "tests.attacks.lying_prometheus",
             str(self._port), own, other, *pods],
            directory / "lying-prometheus.log",
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._program.start()
        wait_until("Prometheus answers", lambda: self.lie(lies=False), 20, (self._program,))
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    def lie(self, *, lies: bool) -> bool:
        """Flood the lists of series from now on, or no longer; whether that was heard."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=10)
        try:
            connection.request("PUT", "/lies", b"1" if lies else b"0")
            return connection.getresponse().status == 200
        finally:
            connection.close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, own: str, other: str, pods: Sequence[str]) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.lies = False
        self.evils = itertools.cycle(("interim", "impossible", "redirect"))
        self.pods = [{"namespace": own, "pod": pod} for pod in pods]
        evil = {"namespace": other, "pod": "evil-1"}
        series = [{"__name__": "evil_total", **evil}]
        series += ({"__name__": "http_requests_total", **each} for each in self.pods)
        shapes = ({"__name__": "http_requests_total", f"a{n}": "", **evil} for n in range(SHAPES))
        names = ({"__name__": f"flood_{n}", **evil} for n in range(NAMES))
        self.honest, self.flooded = (
            json.dumps({"status": "success", "data": data}).encode()
            for data in (series, [*names, *shapes, *series])
        )

    def answer(self, path: str, words: str, now: float) -> bytes:
        if path.endswith("/series"):
            return self.flooded if self.lies else self.honest
        # When it was scraped is asked beside the value.
        value = [now, str(now) if "timestamp" in words else "10"]
        result = [{"metric": pod, "value": value} for pod in self.pods]
        data = {"resultType": "vector", "result": result}
        return json.dumps({"status": "success", "data": data}).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_PUT(self) -> None:
        self.server.lies = self._body() == "1"
        self._answer(b"{}")

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        self._asked(url.path, url.query)

    def do_POST(self) -> None:
        self._asked(urllib.parse.urlsplit(self.path).path, self._body())

    def _asked(self, path: str, words: str) -> None:
        now = time.time()
        if self.server.lies and "evil_total" in words and not path.endswith("/series"):
            match next(self.server.evils):
                case "interim":
                    with contextlib.suppress(OSError):
                        while True:
                            self.wfile.write(_INTERIM)
                    return
                case "redirect":
                    # The discard port: who followed it would be refused.
                    self.wfile.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n"
                                     b"Location: http://127.0.0.1:9/\r\n\r\n")  # fmt: skip
                    return
                case _:
                    now = _IMPOSSIBLE_S
        self._answer(self.server.answer(path, words, now))

    def _body(self) -> str:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()

    def _answer(self, body: bytes) -> None:
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.wfile.write(head.encode() + body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    _, listens, own, other, *names = sys.argv
    _Server(int(listens), own, other, names).serve_forever()
