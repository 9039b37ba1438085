"""Pretend pods that a real Prometheus scrapes: one process, one target per pod.

Run as a program (``python exporter.py PORT``, standard library only) it serves
``/sd`` (http_sd), ``/targets/NAME/metrics`` and, for `Exporter` below, ``PUT /control``.
Counters with a rate grow by themselves, so a test never has to feed them.
"""

import http.client
import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

Weather = Literal["up", "down", "hangs", "fails"]


@dataclass(frozen=True)
class Sample:
    """One series of a target; the scraped value is ``value + rate * seconds since it was set``."""

    name: str
    value: float = 0.0
    rate: float = 0.0  # per second
    labels: Mapping[str, str] = field(default_factory=dict)
    type: Literal["gauge", "counter"] = "gauge"
    age_s: float | None = None  # exposes an explicit timestamp this far back


def counter(name: str, rate: float, value: float = 0.0, **labels: str) -> Sample:
    return Sample(name, value, rate, labels, "counter")


def gauge(name: str, value: float, **labels: str) -> Sample:
    return Sample(name, value, labels=labels)


@dataclass(frozen=True)
class Target:
    """What service discovery says of a target, what it exposes, and how it behaves.

    ``down`` closes the connection unanswered, ``hangs`` never answers, ``fails``
    answers 500. Setting a target again keeps the place of counters that grow.
    """

    labels: Mapping[str, str]  # on every series of the target: namespace, pod, ...
    samples: Sequence[Sample] = ()
    weather: Weather = "up"


def pod(namespace: str, name: str, *samples: Sample, container: str = "app") -> tuple[str, Target]:
    """Return the name and target of a pod, labelled as a Kubernetes scrape config would."""
    labels = {"namespace": namespace, "pod": name, "container": container}
    return f"{namespace}.{name}", Target(labels, samples)


class Exporter:
    """The process and its controls; blocks, so call it from an async test in a thread."""

    def __init__(self, directory: Path) -> None:
        from tests.tools.process import Program, free_port  # the program itself runs without

        self.port = free_port()
        self.program = Program(
            "exporter", [sys.executable, __file__, str(self.port)], directory / "exporter.log"
        )
        self._targets: dict[str, Target] = {}

    def __enter__(self) -> Self:
        from tests.tools.process import wait_until

        try:
            self.program.start()
            wait_until("the exporter answers", self._push, 20.0, (self.program,))
        except BaseException:
            self.program.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()

    def tails(self) -> str:
        return self.program.tail()

    @property
    def targets(self) -> Mapping[str, Target]:
        return self._targets

    def set(self, *targets: tuple[str, Target]) -> None:
        """Add targets or replace what they expose; Prometheus finds new ones in about 5 s."""
        self._targets.update(targets)
        self._push()

    def replace(self, targets: Iterable[tuple[str, Target]]) -> None:
        """Make these the only targets."""
        self._targets = dict(targets)
        self._push()

    def remove(self, *names: str) -> None:
        """Take targets out of service discovery, as a deleted pod is."""
        for name in names:
            del self._targets[name]
        self._push()

    def weather(self, weather: Weather, *names: str) -> None:
        """Change how targets behave; they stay in service discovery."""
        for name in names:
            old = self._targets[name]
            self._targets[name] = Target(old.labels, old.samples, weather)
        self._push()

    def scrape_config(self, interval_s: float = 1.0, job: str = "pods") -> dict[str, Any]:
        """Return the scrape config that finds every target here."""
        return {
            "job_name": job,
            "scrape_interval": f"{round(interval_s * 1000)}ms",
            "scrape_timeout": f"{round(interval_s * 1000)}ms",
            "honor_timestamps": True,
            "http_sd_configs": [
                {"url": f"http://127.0.0.1:{self.port}/sd", "refresh_interval": "1s"}
            ],
        }

    def _push(self) -> bool:
        body = json.dumps({name: asdict(target) for name, target in self._targets.items()})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("PUT", "/control", body)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status != 204:
            raise RuntimeError(f"the exporter refused its targets: {answer.status}")
        return True


class _Series:
    """A sample as the process keeps it: where the growing value stood, and when."""

    def __init__(self, sample: Mapping[str, Any], before: "_Series | None", now: float) -> None:
        self.sample = sample
        self.since = now
        self.start = float(sample["value"])
        # A counter that is only given another rate must not fall: that is a reset.
        if before is not None and sample["rate"] and sample["value"] == before.sample["value"]:
            self.start = before.at(now)

    def at(self, now: float) -> float:
        return float(self.start + self.sample["rate"] * (now - self.since))

    def line(self, now: float) -> str:
        labels = ",".join(
            f'{name}="{_escaped(value)}"' for name, value in self.sample["labels"].items()
        )
        age = self.sample["age_s"]
        stamp = "" if age is None else f" {round((now - age) * 1000)}"
        return f"{self.sample['name']}{{{labels}}} {self.at(now)!r}{stamp}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.lock = threading.Lock()
        self.targets: dict[str, dict[str, Any]] = {}
        self.series: dict[tuple[str, str, str], _Series] = {}

    def control(self, targets: dict[str, dict[str, Any]]) -> None:
        now = time.time()
        series = {}
        for name, target in targets.items():
            for sample in target["samples"]:
                key = (name, sample["name"], json.dumps(sample["labels"], sort_keys=True))
                before = self.series.get(key)
                same = before is not None and before.sample == sample
                series[key] = before if before and same else _Series(sample, before, now)
        with self.lock:
            self.targets, self.series = targets, series

    def discovered(self, port: int) -> list[dict[str, Any]]:
        with self.lock:
            return [
                {
                    "targets": [f"127.0.0.1:{port}"],
                    "labels": {
                        "__metrics_path__": f"/targets/{name}/metrics",
                        # Without it all targets are one instance and their series collide.
                        "instance": name,
                        **target["labels"],
                    },
                }
                for name, target in self.targets.items()
            ]

    def exposed(self, target: str) -> str:
        now = time.time()
        with self.lock:
            series = [seen for key, seen in self.series.items() if key[0] == target]
        lines: dict[str, list[str]] = {}
        for seen in series:
            name = seen.sample["name"]
            lines.setdefault(name, [f"# TYPE {name} {seen.sample['type']}\n"]).append(
                seen.line(now)
            )
        return "".join(line for group in lines.values() for line in group)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.control(json.loads(self.rfile.read(length)))
        self._answer(204, "text/plain", b"")

    def do_GET(self) -> None:
        if self.path == "/sd":
            found = self.server.discovered(self.server.server_port)
            self._answer(200, "application/json", json.dumps(found).encode())
            return
        name = self.path.removeprefix("/targets/").removesuffix("/metrics")
        target = self.server.targets.get(name)
        weather = target["weather"] if target else "fails"
        if weather == "down":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif weather == "hangs":
            self.close_connection = True
            self.connection.settimeout(60)
            self.rfile.read(1)  # returns when the scraper gives up
        elif weather == "fails":
            self._answer(500, "text/plain", b"as told\n")
        else:
            text = self.server.exposed(name)
            self._answer(200, "text/plain; version=0.0.4", text.encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    _Server(int(sys.argv[1])).serve_forever()
