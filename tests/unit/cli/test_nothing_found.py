"""What is said where nothing is found, and by ``nodes off`` where nobody answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kit.commands import podscale

NOWHERE = "http://127.0.0.1:1"


@contextmanager
def answering(status: int, body: dict[str, object]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_a_fleet_without_decisions_is_said_beside_the_empty_table():
    with answering(200, {"items": [], "metadata": {}}) as url:
        done = podscale("top", "--once", "-A", "-s", url)
    assert done.returncode == 0
    assert "No decisions found: " in done.stderr
    assert "-A" not in done.stderr


@pytest.mark.parametrize("words", [("top", "--once"), ("explain", "hpa")], ids=lambda each: each[0])
@pytest.mark.parametrize("namespace", ["default", "nosuch"])
def test_a_namespace_without_decisions_is_named_and_where_else_to_look(words, namespace):
    given = [] if namespace == "default" else ["-n", namespace]
    with answering(200, {"items": [], "metadata": {}}) as url:
        done = podscale(*words, *given, "-s", url)
    assert done.returncode == 0
    assert f"No decisions found in namespace {namespace}: " in done.stderr
    assert "Try -A for all namespaces, or -n NAMESPACE for another one." in done.stderr


def test_a_pod_that_is_not_found_may_be_in_another_namespace():
    gone = {"kind": "Status", "status": "Failure", "message": 'pods "nosuch" not found',
            "reason": "NotFound", "code": 404}  # fmt: skip
    with answering(404, gone) as url:
        done = podscale("explain", "pod/nosuch", "-n", "shop", "-s", url)
    assert done.returncode == 1
    assert 'pods "nosuch" not found (in another namespace? -n NAMESPACE)' in done.stderr


def test_nodes_off_without_a_cluster_names_itself_and_what_to_do():
    done = podscale("nodes", "off", "-s", NOWHERE)
    assert done.returncode == 1
    assert done.stderr.startswith("podscale nodes off: ")
    assert "--kubeconfig, --context or --server" in done.stderr
