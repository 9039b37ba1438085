"""The Go programs of the benches, built with plain ``go build`` into the tool cache."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any, Self

import numpy as np

from tests.tools import cache
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

SOURCES = Path(__file__).parent / "go"


def program(name: str) -> Path:
    """Build ``tests/bench/go/NAME`` if its source changed, and return the binary."""
    source = SOURCES / name
    built = cache.cache_directory() / "bench" / name
    newest = max(file.stat().st_mtime for file in source.iterdir())
    if not built.exists() or built.stat().st_mtime < newest:
        built.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-o", str(built), "."], cwd=source, check=True)
    return built


def histograms_s(containers: int) -> float:
    """Return CPU seconds of Go for a sample and three percentiles of two histograms each.

    They have a day of samples at 15 minutes before, of levels far apart from each other.
    """
    count, rounds, step_s = 2 * containers, 96, 900
    source = np.random.default_rng(20260302)
    level = np.exp(source.normal(np.log(0.2), 1.2, count))
    command = [str(program("histograms")), "/dev/stdin"]
    command += map(str, (count, rounds, 0, step_s))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as go:
        assert go.stdin is not None
        assert go.stdout is not None
        for _ in range(rounds + 1):
            go.stdin.write((level * np.exp(source.normal(0.0, 0.4, count))).tobytes())
        go.stdin.close()
        told = json.loads(go.stdout.read())
    return float(told["add_s"] + told["read_s"])


class GoServer:
    """Go's net/http, with the certificate of ``directory``, that answers ``body`` to everything."""

    def __init__(self, directory: Path, body: bytes) -> None:
        (directory / "body").write_bytes(body)
        self.port = free_port()
        self.url = f"https://{LOOPBACK}:{self.port}/"
        certificate, key = next(directory.glob("*.crt")), next(directory.glob("*.key"))
        self.server = Program(
            "go",
            [
                program("httpyard"), "serve", "-cert", certificate, "-key", key,
                "-port", str(self.port), "-body", directory / "body",
            ],
            directory / "go.log",
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.server.start()
        wait_until("the Go server listens", self._listens, 30, (self.server,))
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def _listens(self) -> bool:
        with socket.create_connection((LOOPBACK, self.port), timeout=1):
            return True


def load(
    urls: list[str],
    scratch: Path,
    *,
    clients: int,
    seconds: float,
    rate: float = 0.0,
    requests: int = 0,
    token: str = "",
    accepts_gzip: bool = False,
    apart: bool = False,
) -> dict[str, Any]:
    """Send GETs to ``urls`` in turn; return the load generator's figures.

    ``rate`` is over all clients, 0 is a closed loop; ``requests`` ends it early; ``apart`` gives
    each client a connection of its own, else they share those that are idle.
    """
    listed = scratch / "urls.txt"
    listed.write_text("\n".join(urls))
    done = subprocess.run(
        [
            str(program("httpyard")), "load",
            "-clients", str(clients), "-rate", str(rate), "-seconds", str(seconds),
            "-requests", str(requests), "-token", token,
            *(["-gzip"] if accepts_gzip else []), *(["-apart"] if apart else []), str(listed),
        ],
        capture_output=True, text=True, check=True, timeout=seconds + 60,
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
