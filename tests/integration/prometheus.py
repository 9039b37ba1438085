"""A real Prometheus on a loopback port: scraping, seeded, frozen, killed, restarted.

``with PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as prometheus``
is ready when it is entered. It blocks: from an async test call it in a thread.
"""

import http.client
import json
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.tools.cache import find
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

READY_DEADLINE_S = 60.0
KEPT_FOR = "50y"  # seeded samples may carry any date


class QueryError(Exception):
    """Prometheus refused a query; the text is its own."""


class PrometheusServer:
    """One server and its data directory, which a restart keeps."""

    def __init__(
        self,
        directory: Path,
        *,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        evaluation_interval_s: float = 1.0,
        rules: Mapping[str, Any] | None = None,
        openmetrics: str = "",
        arguments: Sequence[str] = (),
        binary: Path | None = None,
    ) -> None:
        """``openmetrics`` (timestamps in seconds, ``# EOF`` at its end) becomes blocks first."""
        self.directory = directory
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.binary = binary or require("prometheus")
        self._data = directory / "data"
        self._config_file = directory / "prometheus.json"
        self._rules_file = directory / "rules.json"
        self._openmetrics = openmetrics
        self._rules = rules
        self._evaluation_interval_s = evaluation_interval_s
        self._write_config(scrape_configs)
        self.program = Program(
            "prometheus",
            [
                self.binary,
                f"--config.file={self._config_file}",
                f"--storage.tsdb.path={self._data}",
                f"--storage.tsdb.retention.time={KEPT_FOR}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--web.enable-remote-write-receiver",
                "--web.enable-lifecycle",
                *arguments,
            ],
            directory / "prometheus.log",
        )

    def __enter__(self) -> Self:
        if self._openmetrics:
            self._seed(self._openmetrics)
        try:
            self.start()
        except BaseException:
            self.program.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it (again, on the same port and data) and return when it is ready."""
        self.program.start()
        wait_until("Prometheus is ready", self._is_ready, READY_DEADLINE_S, (self.program,))

    def stop(self) -> None:
        self.program.stop()

    def kill(self) -> None:
        """End it without a chance to write; the write-ahead log is replayed at the next start."""
        self.program.kill()

    def pause(self) -> None:
        """Freeze it: connections are accepted by the kernel and never answered."""
        self.program.pause()

    def resume(self) -> None:
        self.program.resume()

    def restart(self) -> None:
        self.stop()
        self.start()

    def tails(self) -> str:
        return self.program.tail()

    def reload(self, scrape_configs: Sequence[Mapping[str, Any]]) -> None:
        """Scrape something else from now on."""
        self._write_config(scrape_configs)
        status, raw = self._request("POST", "/-/reload")
        if status != 200:
            raise QueryError(raw.decode(errors="replace"))

    def query(self, promql: str, at: float | None = None) -> list[Any]:
        """Return the ``result`` of an instant query (vector: metric and value)."""
        words = {"query": promql} | ({} if at is None else {"time": repr(at)})
        return self._result("/api/v1/query", words)

    def query_range(self, promql: str, start: float, end: float, step_s: float) -> list[Any]:
        words = {"query": promql, "start": repr(start), "end": repr(end), "step": repr(step_s)}
        return self._result("/api/v1/query_range", words)

    def values(self, promql: str, label: str = "pod") -> dict[str, float]:
        """Return an instant vector keyed by one label."""
        return {
            element["metric"].get(label, ""): float(element["value"][1])
            for element in self.query(promql)
        }

    def wait_for(self, promql: str, count: int = 1, deadline_s: float = 30.0) -> list[Any]:
        """Return the result of a query as soon as it has at least ``count`` elements."""
        found: list[Any] = []

        def probe() -> bool:
            found[:] = self.query(promql)
            return len(found) >= count

        wait_until(f"{promql} has {count} elements", probe, deadline_s, (self.program,))
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process so far, user and system, all threads."""
        # After the name in parentheses come state (field 3) ..., utime (14), stime (15).
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _write_config(self, scrape_configs: Sequence[Mapping[str, Any]]) -> None:
        evaluation = f"{round(self._evaluation_interval_s * 1000)}ms"
        config: dict[str, Any] = {
            "global": {"evaluation_interval": evaluation},
            "scrape_configs": list(scrape_configs),
        }
        if self._rules:
            self._rules_file.write_text(json.dumps(self._rules))
            config["rule_files"] = [str(self._rules_file)]
        # JSON is YAML; Prometheus reads it as it stands.
        self._config_file.write_text(json.dumps(config, indent=1))

    def _seed(self, openmetrics: str) -> None:
        source = self.directory / "seed.txt"
        source.write_text(openmetrics)
        # The source is read once for each block: those of two hours are dear for weeks.
        command = [require("promtool"), "tsdb", "create-blocks-from", "--max-block-duration=31d"]
        done = subprocess.run(
            [*map(str, command), "openmetrics", str(source), str(self._data)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise QueryError(f"promtool refused the seed: {done.stderr.strip()}")

    def _result(self, path: str, words: Mapping[str, str]) -> list[Any]:
        body = urllib.parse.urlencode(words).encode()
        _, raw = self._request("POST", path, body)
        answer = json.loads(raw)
        if answer["status"] != "success":
            raise QueryError(f"{answer['errorType']}: {answer['error']}")
        result = answer["data"]["result"]
        assert isinstance(result, list)
        return result

    def _request(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = 30.0
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _is_ready(self) -> bool:
        return self._request("GET", "/-/ready", timeout_s=2.0)[0] == 200


def installed() -> dict[str, Path]:
    """Return the Prometheus programs to test against: 3.x, and Debian's 2.x where it is."""
    programs = {}
    if three := find("prometheus"):
        programs["3.x"] = three
    if (two := shutil.which("prometheus")) and " 2." in _version(two):
        programs["2.x"] = Path(two)
    return programs


def _version(program: str) -> str:
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return asked.stdout.partition("(")[0]
