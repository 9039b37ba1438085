"""``explain -w`` against a server that changes its mind, and is away in between."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from podscale.cli.commands import explain
from podscale.cli.commands.explain import _gist
from podscale.kube.client.errors import ServerFailed

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


def sized(value: str, held_by: str = "", time: str = "now") -> dict[str, Any]:
    facts = {"held_by": held_by} if held_by else {}
    return {
        "kind": "SizingDecision",
        "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": time},
        "status": {
            "time": time,
            "first_reason": "PercentileOfUsage",
            "recommendation": [{"container": "app", "resource": "cpu", "facts": facts,
                                "decision": {"value": value}}],
        },
    }  # fmt: skip


def acted(action: str) -> dict[str, Any]:
    found = sized("1")
    found["status"]["pods"] = [{"pod": "web-0", "decision": {"action": action}}]
    return found


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        pytest.param(sized("1"), sized("1", time="later"), False, id="the-same-later"),
        pytest.param(sized("1"), sized("2"), True, id="another-amount"),
        pytest.param(sized("1", "HistoryLost"), sized("1"), True, id="held-no-longer"),
        pytest.param(acted("none"), acted("evict"), True, id="a-pod-to-be-evicted"),
    ],
)
def test_a_change_of_a_vpa_is_another_amount_or_another_act_and_not_the_time(
    before: dict[str, Any], after: dict[str, Any], is_told: bool
) -> None:
    assert (_gist(before) != _gist(after)) is is_told
    assert (_gist({"items": [before]}) != _gist({"items": [after]})) is is_told
    assert _gist({"items": [before]}) != _gist({"items": [before, before]})


async def test_a_leader_that_stays_away_does_not_end_a_watch(monkeypatch) -> None:
    class Refusing:
        async def request(self, *_: Any, **__: Any) -> Any:
            raise ServerFailed(503, "ServiceUnavailable", "this replica does not decide")

    monkeypatch.setattr(explain, "_PATIENCE_S", 0.0)
    api: Any = Refusing()
    with pytest.raises(explain.ExplainUnanswered, match="does not decide"):
        await explain._ask(api, "/apis", None, "hpa.podscale.io")


async def test_a_long_list_is_asked_for_in_pages_and_told_as_one() -> None:
    asked = []

    class Paging:
        async def request(self, _method: str, _path: str, *, query: Any, **_: Any) -> Any:
            asked.append(dict(query))
            start = int(query.get("continue", "0"))
            items = [{"metadata": {"name": f"web-{n}"}} for n in range(start, start + 2)]
            metadata = {"continue": str(start + 2)} if start < 4 else {}
            body = json.dumps({"kind": "List", "metadata": metadata, "items": items})
            return SimpleNamespace(body=body.encode())

    api: Any = Paging()
    found = await explain.whole_answer(api, "/apis", {"labelSelector": "a=b"}, "hpa.podscale.io")
    assert [each["metadata"]["name"] for each in found["items"]] == [f"web-{n}" for n in range(6)]
    assert found["metadata"] == {}
    assert {each["labelSelector"] for each in asked} == {"a=b"}
    assert len(asked) == 3
