"""Two hundred thousand series with independent noise: one target that Prometheus scrapes.

``python -m tests.bench.noise --hpas N --port P [--cpu]``. Every series moves by up to 5 % at every
scrape; the load of the restless HPAs asks for two pods more and two fewer in turn. ``--cpu``: with
what containers use of it whose HPA may have a VPA.
"""

import argparse
import http.server
import random

from tests.bench.hpa_cluster import (
    CPU_MILLI,
    MOST,
    PER_NAMESPACE,
    PODS,
    is_restless,
    name_of,
    namespace_of,
    sized,
)
from tests.tools.process import LOOPBACK

HIGH, LOW = 1.15, 0.82


class Series:
    """All series, their names rendered once."""

    def __init__(self, count: int, *, has_cpu: bool) -> None:
        self._steady: list[str] = []
        self._restless: list[str] = []
        self._queues = [
            f'queue_length{{namespace="{namespace_of(first)}"}} '
            for first in range(0, count, PER_NAMESPACE)
        ]
        for index in range(count):
            found = self._restless if is_restless(index) else self._steady
            pods = MOST if is_restless(index) else PODS
            for metric in ("load", "connections"):
                found += [
                    f'{metric}{{namespace="{namespace_of(index)}",pod="{name_of(index)}-{n}"}} '
                    for n in range(pods)
                ]
        self._cpu = [
            f'cpu_cores{{namespace="{namespace_of(index)}",pod="{name_of(index)}-{n}",'
            'container="app"} '
            for index in (sized(count) if has_cpu else ())
            for n in range(PODS)
        ]
        self._scrapes = 0

    def render(self) -> bytes:
        self._scrapes += 1
        level = HIGH if self._scrapes % 2 else LOW
        noise = random.random
        lines = [f"{name}{0.95 + 0.1 * noise():.4f}" for name in self._steady]
        lines += [f"{name}{level * (0.99 + 0.02 * noise()):.4f}" for name in self._restless]
        lines += [f"{name}{9.5 + noise():.4f}" for name in self._queues]
        lines += [f"{name}{(0.95 + 0.1 * noise()) * CPU_MILLI / 1000:.5f}" for name in self._cpu]
        lines.append("")
        return "\n".join(lines).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hpas", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    series = Series(given.hpas, has_cpu=given.cpu)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            raw = series.render()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer((LOOPBACK, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
