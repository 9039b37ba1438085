"""``explain -w`` against a server that changes its mind, and is away in between."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

AWAY = None
ANSWERS = [2, 2, AWAY, AWAY, 3]  # replicas, a second apart; the last one from then on


def decision(replicas: int) -> bytes:
    return json.dumps({
        "kind": "ScalingDecision",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        "status": {"replicas": replicas, "first_reason": "MetricAboveTarget", "time": "now"},
    }).encode()  # fmt: skip


@pytest.fixture
def server() -> Iterator[str]:
    left = list(ANSWERS)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = left.pop(0) if len(left) > 1 else left[0]
            if answer is AWAY:
                self.connection.close()
                return
            self.send_response(200)
            body = decision(answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def watched(server: str, form: str, until: str) -> tuple[str, str, int]:
    """Return what was printed until a line holds ``until``, then Ctrl-C, and the exit code."""
    with subprocess.Popen(
        [sys.executable, "-m", "podscale", "explain", "hpa/web", "-n", "shop", "-s", server,
         "-w", "-o", form],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            shown = ""
            for line in running.stdout:
                shown += line
                if until in line:
                    break
            running.send_signal(signal.SIGINT)
            shown += running.stdout.read()
            return shown, running.stderr.read(), running.wait(timeout=20)
        finally:
            running.kill()  # a test that timed out would wait for it without end


def test_a_watch_prints_changes_only_and_outlives_a_server_that_is_away(server: str) -> None:
    shown, errors, code = watched(server, "table", "web: 3 replicas")
    assert code == 0
    assert [line for line in shown.splitlines() if "→" in line] == [
        "shop/web → Deployment/web: 2 replicas, now",
        "shop/web → Deployment/web: 3 replicas, now",
    ]
    assert errors.count("\n") == 1  # told once, however often it was asked
    assert "asking on, Ctrl-C ends it" in errors


def test_a_watch_as_json_is_a_document_after_the_other(server: str) -> None:
    shown, _, _ = watched(server, "json", '"replicas": 3')
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(shown.rstrip()):
        document, at = decoder.raw_decode(shown, at)
        found.append(document["status"]["replicas"])
        at += 1
    assert found == [2, 3]
