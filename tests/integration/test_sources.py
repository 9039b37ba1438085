"""Several Prometheis behind one adapter: each rule is answered by its own, with its credentials.

One source wants TLS and a password, one a tenant's header and refuses POST; each can hang.
"""

import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
import yaml

from adapter.sources import sources_file
from tests.conformance import adapter_world as world
from tests.integration.test_adapter import PLAIN, eventually, run, sample

EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}"
FAST = (*PLAIN, "--prometheus-timeout=1s", "--series-timeout=1s")
PASSWORD = "hunter-of-secrets"


class Source:
    """A Prometheus with one series for each name; what it demands and how it behaves."""

    def __init__(self, value: str, names: tuple[str, ...], demands: dict[str, str]) -> None:
        self.value, self.names, self.demands = value, names, demands
        self.url = ""
        self.allows_post = True
        self.seen: list[dict[str, str]] = []
        self.queries: list[str] = []
        self.statuses: dict[str, int] = {}  # by the end of a path; 302 leads to where it came from
        self.thawed = threading.Event()
        self.thawed.set()

    def answer(self, path: str, form: dict[str, str]) -> dict[str, object] | bytes:
        """Return the body of one request."""
        labels = [{"__name__": name, "namespace": "default"} for name in self.names]
        if path.endswith("/series"):
            return {"status": "success", "data": labels}
        self.queries.append(form["query"])
        rows = [{"metric": {}, "value": [time.time(), self.value]}]
        return {"status": "success", "data": {"resultType": "vector", "result": rows}}


@contextmanager
def serving(source: Source, authority: trustme.CA | None = None) -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a close right behind a long answer may cut it

        def do_GET(self) -> None:
            form = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
            self._answer(form)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if source.allows_post:
                self._answer({k: v[0] for k, v in parse_qs(body).items()})
            else:
                self._send(405, b"read only")

        def _answer(self, form: dict[str, str]) -> None:
            source.seen.append(dict(self.headers))
            source.thawed.wait(30)
            if any(self.headers.get(name) != value for name, value in source.demands.items()):
                self._send(401, b"who are you?")
            else:
                path = urlsplit(self.path).path
                found = source.answer(path, form)
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self._send(source.statuses.get(path.rpartition("/")[2], 200), body)

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{source.url}{self.path}&again=1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if authority is not None:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    source.url = f"{scheme}://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield source
    finally:
        source.thawed.set()
        server.shutdown()
        server.server_close()


def rule(name: str, source: str = "") -> dict[str, object]:
    found: dict[str, object] = {
        "seriesQuery": name, "resources": {"template": "<<.Resource>>"},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
    }  # fmt: skip
    return {**found, "source": source} if source else found


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Source]]:
    monkeypatch.setattr(sources_file, "SECRET_FOLDERS", (str(tmp_path),))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    basic = "Basic " + b64encode(f"podscale:{PASSWORD}".encode()).decode()
    infra = Source("11", ("infra_queue", "shared_queue"), {"Authorization": basic})
    tenant = Source("22", ("tenant_queue", "shared_queue"), {"X-Scope-OrgID": "shop"})
    tenant.allows_post = False
    with serving(infra, authority), serving(tenant):
        yield {"infra": infra, "tenant": tenant}


def written(tmp_path: Path, sources: dict[str, Source], **more: object) -> str:
    entries = [
        {"name": "infra", "url": sources["infra"].url, "username": "podscale",
         "caFile": str(tmp_path / "ca.crt"), "passwordFile": str(tmp_path / "password")},
        {"name": "tenant", "url": sources["tenant"].url, "headers": {"X-Scope-OrgID": "shop"},
         "queryParameters": {"dedup": "false"}, "verb": "POST"},
    ]  # fmt: skip
    del entries[1]["verb"]  # POST is refused there: found out, not written
    return yaml.safe_dump({"sources": entries, **more})


@contextmanager
def adapter(tmp_path: Path, text: str, rules: list[dict[str, object]], *more: str):
    file = tmp_path / "sources.yaml"
    file.write_text(text)
    prometheus = world.ScriptedPrometheus(
        [("own_queue", [{"__name__": "own_queue", "namespace": "default"}]),
         ("shared_queue", [{"__name__": "shared_queue", "namespace": "default"}])],
        [("queue", [[{}, "1", None]])],
    )  # fmt: skip
    config = {"externalRules": rules}
    with run(tmp_path, config, prometheus, *FAST, f"--sources={file}", *more) as running:
        running.sources = file
        eventually(lambda: running.ask("/readyz").status == 200)
        yield running


def value(running, namespace: str, metric: str) -> str:
    found = running.ask(EXTERNAL.format(namespace, metric))
    assert found.status == 200, found.body
    return found.body["items"][0]["value"]


RULES = [rule("own_queue"), rule("infra_queue", "infra"), rule("tenant_queue", "tenant")]


def test_each_rule_is_answered_by_its_source_with_its_credentials(tmp_path, sources) -> None:
    with adapter(tmp_path, written(tmp_path, sources), RULES) as running:
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)
        eventually(lambda: running.ask(EXTERNAL.format("default", "tenant_queue")).status == 200)
        assert value(running, "default", "own_queue") == "1"
        assert value(running, "default", "infra_queue") == "11"
        assert value(running, "default", "tenant_queue") == "22"
        assert sample(running, 'podscale_feed_queries_total{purpose="single",source="infra"}') > 0
        assert PASSWORD not in running.ask("/metrics").body
    for name, seen in (("infra", "tenant_queue"), ("tenant", "infra_queue")):
        assert not any(seen in text or "own_queue" in text for text in sources[name].queries)
    assert all("X-Scope-Orgid" not in {k.title() for k in each} for each in sources["infra"].seen)


def test_a_source_that_hangs_is_its_own_rules_failure(tmp_path, sources) -> None:
    with adapter(tmp_path, written(tmp_path, sources), RULES) as running:
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)
        eventually(lambda: running.ask(EXTERNAL.format("default", "tenant_queue")).status == 200)
        sources["infra"].thawed.clear()
        failed: list[int] = []
        asking = threading.Thread(
            target=lambda: failed.append(
                running.ask(EXTERNAL.format("default", "infra_queue")).status
            )
        )
        asking.start()
        for _ in range(5):
            assert value(running, "default", "tenant_queue") == "22"
            assert value(running, "default", "own_queue") == "1"
        assert asking.is_alive(), "the others were answered while the frozen one was waited for"
        asking.join(10)
        assert failed == [504]
        sources["infra"].thawed.set()
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)


def test_a_start_beside_a_frozen_source_serves_the_others(tmp_path, sources) -> None:
    sources["infra"].thawed.clear()
    text = written(tmp_path, sources).replace(
        "  name: infra\n", "  name: infra\n  seriesTimeout: 4s\n"
    )
    assert "seriesTimeout" in text
    with adapter(tmp_path, text, RULES) as running:
        assert value(running, "default", "own_queue") == "1"
        answer = running.ask(EXTERNAL.format("default", "infra_queue"))
        assert answer.status in (503, 504), "not listed yet, and that is no 404"
        sources["infra"].thawed.set()
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)


def test_a_namespace_chooses_for_rules_without_a_source(tmp_path, sources) -> None:
    namespaces = [{"match": "infra-*", "source": "infra"}, {"match": "shop", "source": "tenant"}]
    text = written(tmp_path, sources, namespaces=namespaces)
    with adapter(tmp_path, text, [rule("shared_queue")]) as running:
        assert value(running, "infra-1", "shared_queue") == "11"
        assert value(running, "shop", "shared_queue") == "22"
        assert value(running, "default", "shared_queue") == "1"


def test_sources_are_read_again_and_a_bad_file_changes_nothing(tmp_path, sources) -> None:
    with adapter(tmp_path, written(tmp_path, sources), RULES) as running:
        eventually(lambda: running.ask(EXTERNAL.format("default", "tenant_queue")).status == 200)
        running.sources.write_text("sources: [{name: infra}]")
        eventually(lambda: "is refused" in running.ask("/readyz?verbose").body)
        assert value(running, "default", "tenant_queue") == "22"
        sources["tenant"].demands["X-Scope-OrgID"] = "mall"
        renamed = written(tmp_path, sources).replace("shop", "mall")
        running.sources.write_text(renamed)
        eventually(lambda: running.ask(EXTERNAL.format("default", "tenant_queue")).status == 200)
        eventually(lambda: "is refused" not in running.ask("/readyz?verbose").body)
        (tmp_path / "password").unlink()  # what was read last is sent on
        running.sources.write_text(renamed.replace("localhost", "localhost", 1) + "\n# again\n")
        assert value(running, "default", "infra_queue") == "11"


def test_a_source_that_cannot_be_opened_says_so_and_stops_nobody(tmp_path, sources) -> None:
    (tmp_path / "password").unlink()
    with adapter(tmp_path, written(tmp_path, sources), RULES) as running:
        assert value(running, "default", "own_queue") == "1"
        failed = running.ask(EXTERNAL.format("default", "infra_queue"))
        assert failed.status == 503
        assert failed.body["details"]["causes"][0]["reason"] == "SourceNotOpen"
        (tmp_path / "password").write_text(PASSWORD)
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)


def test_rules_and_the_source_that_they_name_may_come_together(tmp_path, sources) -> None:
    with adapter(tmp_path, "sources: []", RULES[:1]) as running:
        # As two keys of one ConfigMap: whichever is looked at first.
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"externalRules": RULES}))
        eventually(lambda: "is refused" in running.ask("/readyz?verbose").body)
        running.sources.write_text(written(tmp_path, sources))
        eventually(lambda: running.ask(EXTERNAL.format("default", "infra_queue")).status == 200)
        assert "is refused" not in running.ask("/readyz?verbose").body
