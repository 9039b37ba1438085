"""A pretend Prometheus that has nothing but a list of series, as a process of its own.

``python -m tests.bench.pretend_series PORT NAMES SERIES FILE`` writes the answer to FILE once
and sends it from there, so that what it costs to make does not disturb who reads it.
It prints a line whenever the list is asked for.
"""

import http.server
import json
import sys
from pathlib import Path


def write(file: Path, names: int, series: int) -> None:
    """Write the answer of ``/api/v1/series``, some 300 bytes a series, sorted by name."""
    each = series // names
    with file.open("w") as out:
        out.write('{"status":"success","data":[')
        for number in range(names):
            for member in range(each):
                place = (number * 7 + member) % 100
                labels = {
                    "__name__": f"app_{number:05}_requests_duration_seconds_total",
                    "container": "app",
                    "endpoint": "metrics",
                    "instance": f"10.{place}.{member}.{number % 250}:8080",
                    "job": "kubernetes-pods",
                    "namespace": f"ns-{place}",
                    "node": f"worker-{member}.region-a.example",
                    "pod": f"app-{place}-5d4f8c7b96-{number % 1000:05}",
                    "service": f"app-{place}",
                    "status": str(200 + member),
                }
                if number or member:
                    out.write(",")
                out.write(json.dumps(labels, separators=(",", ":")))
        out.write("]}")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    file: Path

    def do_GET(self) -> None:
        if not self.path.startswith("/api/v1/series"):
            self._head(len(_NOTHING))
            self.wfile.write(_NOTHING)
            return
        print("asked", flush=True)
        with self.file.open("rb") as body:
            self._head(self.file.stat().st_size)
            self.connection.sendfile(body)

    def _head(self, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


_NOTHING = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


def main(port: int, names: int, series: int, file: Path) -> None:
    write(file, names, series)
    _Handler.file = file
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    print("serves", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
