"""An adapter that is not ours behind us: its external metrics come through, its failures too.

It serves TLS, wants the token that the cluster made for the reader's account, and can hang, lie
and be gone. Our own rules and it share one ``external.metrics.k8s.io``.
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
import yaml
from aiohttp import web

from adapter.part import KIND
from podscale.core.metrics import ExternalMetric, ExternalSamples, Unavailable
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_wire import wire
from tests.integration.test_adapter import PLAIN, eventually, sample
from tests.integration.test_sources import Source, serving

ROOT = "/apis/external.metrics.k8s.io/v1beta1"
TOKEN = "made-for-the-reader"
LABEL = "scaledobject.keda.sh/name"


class Cluster(world.ScriptedCluster):
    """Makes tokens for the reader's account, and for no other."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.made: list[object] = []
        self.has_account = True
        self.services: list[dict] = []

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/namespaces/podscale/services" and request.query:
            assert request.query["labelSelector"] == "podscale.io/external-backend"
            return web.json_response({"items": self.services})
        return await super()._handle(request)

    def _review(self, path: str, body: dict) -> web.Response:
        if path == "/api/v1/namespaces/podscale/serviceaccounts/reader/token":
            if not self.has_account:
                status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
                          "message": 'serviceaccounts "reader" not found'}  # fmt: skip
                return web.json_response(status, status=404)
            self.made.append(body["spec"])
            return web.json_response({**body, "status": {"token": TOKEN}}, status=201)
        return super()._review(path, body)


class Backend(Source):
    """Serves some metrics; ``answers`` overrides what it says."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("0", (), {"Authorization": f"Bearer {TOKEN}"})
        self.resources = [{"name": name, "namespaced": True} for name in names]
        self.list_answer: dict[str, object] | bytes | None = None
        self.asked: list[str] = []
        self.answers: dict[str, object] = {}

    def answer(self, path: str, form: dict[str, str]) -> dict[str, object] | bytes:
        if path == ROOT:
            return self.list_answer or {"kind": "APIResourceList", "resources": self.resources}
        name = path.rpartition("/")[2]
        self.asked.append(f"{path}?{form}")
        item = {"metricName": name, "metricLabels": {"of": "keda"},
                "timestamp": "2026-01-31T10:00:00Z", "value": "4500m"}  # fmt: skip
        found = self.answers.get(name, {"kind": "ExternalMetricValueList", "items": [item]})
        assert isinstance(found, dict)
        return found


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "backend-ca.crt")
    with serving(Backend(["keda_lag", "own_queue"]), authority) as running:
        assert isinstance(running, Backend)
        yield running


@contextmanager
def adapter(tmp_path: Path, backend: Backend, *others: Backend):
    entry = {"name": "keda", "url": backend.url, "caFile": str(tmp_path / "backend-ca.crt"),
             "serviceAccount": "podscale/reader", "metrics": ["s0-*"], "timeout": "1s",
             "selectorLabel": LABEL}  # fmt: skip
    beside = [{**entry, "name": f"other{n}", "url": each.url} for n, each in enumerate(others)]
    file = tmp_path / "backends.yaml"
    file.write_text(yaml.safe_dump({"backends": [entry, *beside], "services": True}))
    rule = {"seriesQuery": "own_queue", "resources": {"namespaced": False},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})"}  # fmt: skip
    prometheus = world.ScriptedPrometheus(
        [("own_queue", [{"__name__": "own_queue"}])], [("own_queue", [[{}, "7", None]])]
    )
    with wire(
        tmp_path, {"externalRules": [rule]},
        lambda authorities: Cluster(world.part_c_resources(), rows("C1"), authorities),
        prometheus, *PLAIN, "--authorization-cluster-first=false",
        f"--external-backends={file}",
    ) as running:  # fmt: skip
        running.file = file
        eventually(lambda: {"own_queue", "keda_lag"} <= names(running))
        try:
            yield running
        finally:
            # A loop that ends while a TLS peer hangs cannot close what leads to it.
            backend.thawed.set()
            time.sleep(0.5)


def names(running) -> set[str]:
    return {each["name"] for each in running.ask(ROOT).body["resources"]}


def get(running, metric: str, query: str = ""):
    return running.ask(f"{ROOT}/namespaces/default/{metric}{query}")


def test_what_it_lists_or_matches_is_its_own_and_our_rules_come_first(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        found = get(running, "keda_lag").body["items"]
        assert [(i["metricName"], i["value"], i["metricLabels"]) for i in found] == [
            ("keda_lag", "4500m", {"of": "keda"})
        ]
        assert found[0]["timestamp"] == "2026-01-31T10:00:00Z"
        assert get(running, "s0-prometheus").body["items"][0]["value"] == "4500m"
        assert get(running, "own_queue").body["items"][0]["value"] == "7"
        owned = get(running, "own_queue", f"?labelSelector={LABEL}%3Dweb").body["items"]
        assert owned[0]["value"] == "4500m", "its selector says that it is asked for"
        assert "labelSelector" in backend.asked[-1]
        assert get(running, "unheard_of").status == 404
        before = len(backend.asked)
        denied = running.ask(f"{ROOT}/namespaces/default/keda_lag", {"token": "bob"})
        assert (denied.status, len(backend.asked)) == (403, before)
        assert any("SAR" in call and '"keda_lag"' in call for call in denied.calls)
        assert len(running.cluster.made) == 1, "one token serves until it is old"
    sent = {headers.get("Authorization") for headers in backend.seen}
    assert sent == {f"Bearer {TOKEN}"}, "neither the caller's token nor our own"


def test_its_failure_is_told_as_its_own_and_stops_nobody(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        backend.thawed.clear()
        slow: list[object] = []
        asking = threading.Thread(target=lambda: slow.append(get(running, "keda_lag")))
        asking.start()
        time.sleep(0.1)
        for _ in range(5):
            assert get(running, "own_queue").status == 200
        assert asking.is_alive()
        asking.join(10)
        backend.thawed.set()
        assert slow[0].status == 504
        assert "the external backend keda did not answer in time" in slow[0].body["message"]
        for name, wrong in {
            "s0-nonsense": {"items": [{"value": "many"}]},
            "s0-long": {"items": [], "metadata": {"continue": "x" * 17 * 1024 * 1024}},
        }.items():
            backend.answers[name] = wrong
            failed = get(running, name)
            assert failed.status == 503, failed
            assert "the external backend keda failed" in failed.body["message"]
            assert "Prometheus" not in failed.body["message"]
        backend.demands["Authorization"] = "Bearer another"
        assert get(running, "keda_lag").status == 503
        assert get(running, "own_queue").status == 200


def test_a_request_that_comes_round_again_is_not_passed_on(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        before = len(backend.asked)
        again = running.ask(
            f"{ROOT}/namespaces/default/keda_lag",
            {"headers": {"User-Agent": "podscale-external-backend"}},
        )
        assert (again.status, len(backend.asked)) == (404, before)


def test_an_autoscaler_in_the_process_is_answered_too(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        questions = [
            ExternalMetric("default", "own_queue"),
            ExternalMetric("default", "keda_lag"),
            ExternalMetric("default", "own_queue", f"{LABEL}=web"),
        ]

        def answered():
            source = running.served.adapter.source
            return asyncio.run_coroutine_threadsafe(source.answer(questions), running._loop).result(
                10
            )

        found = answered()
        values = [each.series[0].sample.value_milli for each in found]
        assert values == [7000, 4500, 4500]
        backend.thawed.clear()
        own, other, claimed = answered()
        assert isinstance(own, ExternalSamples)
        assert isinstance(other, Unavailable)
        assert isinstance(claimed, Unavailable)


def look(running, name: str = ""):
    """Let the backends be looked at now: all of their Services, or the list of one."""
    backends = running.served.adapter._ports.backends
    work = backends._read(backends._open[name]) if name else backends.look()
    asyncio.run_coroutine_threadsafe(work, running._loop).result(10)
    return {each["name"]: each for each in running.ask(TOLD, ADMIN).body["backends"]}


def metrics(number: int) -> dict[str, object]:
    return {"kind": "APIResourceList", "resources": [{"name": f"m{n}"} for n in range(number)]}


TOLD = f"{ROOT}/podscale-rules"
ADMIN = {"groups": ["system:masters"]}


def test_its_answer_is_unchanged_and_says_whose_it_is(tmp_path, backend) -> None:
    value = {"metricName": "keda_lag", "metricLabels": None, "timestamp": "2026-01-31T10:00:00.5Z",
             "value": "0.0045", "windowSeconds": 30, "beside": [1]}  # fmt: skip
    whole = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
             "metadata": {"remainingItemCount": 3}, "items": [value]}  # fmt: skip
    backend.answers["keda_lag"] = whole
    with adapter(tmp_path, backend) as running:
        found = get(running, "keda_lag")
        assert found.body == whole
        assert found.headers["X-Podscale-External-Backend"] == "keda"
        assert "X-Podscale-External-Backend" not in get(running, "own_queue").headers
        spelled = {**whole, "items": [{**value, "metricName": "s0-cron-Etc-UTC"}]}
        backend.answers["s0-cron-etc-utc"] = spelled
        assert get(running, "s0-cron-etc-utc").body == spelled, "as client-go asks for it"
        backend.answers["keda_lag"] = {**whole, "items": []}
        assert get(running, "keda_lag").body["items"] == [], "and is never from memory"
        asked = 'podscale_external_backend_requests_total{backend="keda",result="answered"}'
        assert sample(running, asked) == 3
        listed = running.ask(ROOT).body["resources"]
        marked = {each["name"]: each.get("categories") for each in listed}
        assert marked == {"own_queue": None, "keda_lag": ["external-backend"]}


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"items": []}, 200, "no list of values"),
        ({"kind": "ExternalMetricValueList", "items": [{"metricName": "other"}]}, 200, "no list"),
        ({"kind": "ExternalMetricValueList", "items": []}, 302, "no list of values"),
        ({"kind": "Status", "reason": "NotFound", "message": "gone"}, 404, "404 gone"),
        ({"kind": "Status", "reason": "Forbidden", "message": "no get"}, 403, "403 no get"),
        (
            {"kind": "Status", "reason": "InternalError", "message": "scaler: EOF"},
            500,
            "500 scaler: EOF",
        ),
    ],
)
def test_what_it_should_not_answer_is_its_failure(tmp_path, backend, answer, status, words) -> None:
    backend.answers["keda_lag"], backend.statuses["keda_lag"] = answer, status
    with adapter(tmp_path, backend) as running:
        asked = len(backend.seen)
        failed = get(running, "keda_lag")
        assert failed.status == 503
        message = failed.body["message"].replace("its answer is ", "")
        assert f"the external backend keda failed: {words}" in message
        assert failed.body["details"]["causes"][0]["reason"] == "ExternalBackend"
        assert len(backend.seen) == asked + 1, "no redirect is followed"


def test_only_of_a_pattern_that_matches_its_404_is_one(tmp_path, backend) -> None:
    other = Backend(["other_lag"])
    absent = {"kind": "Status", "reason": "NotFound", "message": "none"}
    backend.answers["s0-x"], backend.statuses["s0-x"] = absent, 404
    authority = trustme.CA()
    with serving(other, authority):
        pem = (tmp_path / "backend-ca.crt").read_bytes() + authority.cert_pem.bytes()
        (tmp_path / "backend-ca.crt").write_bytes(pem)
        with adapter(tmp_path, backend, other) as running:
            eventually(lambda: "other_lag" in names(running))
            assert get(running, "s0-x").headers["X-Podscale-External-Backend"] == "other0"
            other.answers["s0-x"], other.statuses["s0-x"] = absent, 404
            assert get(running, "s0-x").status == 404
            backend.statuses["s0-x"] = 500
            other.asked.clear()
            assert get(running, "s0-x").status == 503
            assert other.asked == [], "a failure is the first one's, and no reason to go on"
            other.thawed.clear()
            assert get(running, "s0-y").status == 200, "the first does not wait for the second"


def test_a_list_that_is_too_long_lies_or_comes_from_us_is_bounded(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        kept = names(running)
        backend.list_answer = json.dumps(metrics(1_000_000)).encode()
        assert "more than 2097152 bytes" in look(running, "keda")["keda"]["problem"]
        backend.list_answer = {"resources": []}
        assert "APIResourceList is expected" in look(running, "keda")["keda"]["problem"]
        assert names(running) == kept
        backend.list_answer = metrics(20_000)
        assert "it lists 20000 metrics, 10000" in look(running, "keda")["keda"]["problem"]
        assert len(names(running)) == 10_001
        backend.list_answer = running.ask(ROOT).body  # as if it were ourselves
        assert look(running, "keda")["keda"]["metrics"] == 1
        assert look(running, "keda")["keda"]["shadowed"] == ["own_queue, by our rules"]
        assert names(running) == {"own_queue"}


def test_credentials_that_vanish_keep_what_there_was(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        pem = (tmp_path / "backend-ca.crt").read_bytes()
        (tmp_path / "backend-ca.crt").unlink()
        assert "No such file" in look(running, "keda")["keda"]["problem"]
        assert get(running, "keda_lag").status == 200
        (tmp_path / "backend-ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
        assert "CERTIFICATE_VERIFY_FAILED" in look(running, "keda")["keda"]["problem"]
        assert get(running, "keda_lag").status == 503, "a CA that has changed counts at once"
        (tmp_path / "backend-ca.crt").write_bytes(pem)
        assert look(running, "keda")["keda"]["problem"] == ""
        running.cluster.has_account = False
        credentials = running.served.adapter._ports.backends._open["keda"]._credentials
        credentials._made_s -= 3000
        assert "no token of the ServiceAccount" in look(running, "keda")["keda"]["problem"]
        assert get(running, "keda_lag").status == 200, "the old token is good for an hour"
        credentials._made_s -= 3000
        failed = get(running, "keda_lag")
        assert failed.status == 503, "the cluster's 404 is none of the metric"
        assert "no credentials for it" in failed.body["message"]


def test_an_unlisted_backend_may_have_what_nobody_knows(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        running.served.adapter._ports.backends._open["keda"].is_listed = False
        unknown = get(running, "unheard_of")
        assert unknown.status == 503
        assert "keda has not been listed yet, it may have unheard_of" in unknown.body["message"]
        assert get(running, "own_queue").status == 200


def test_services_come_after_the_file_and_go_again(tmp_path, backend) -> None:
    other = Backend(["of_service", "keda_lag"])
    authority = trustme.CA()
    with serving(other, authority), adapter(tmp_path, backend) as running:
        entry = {
            "caBundle": authority.cert_pem.bytes().decode(),
            "serviceAccount": "podscale/reader",
        }
        spec = {"externalName": "localhost", "ports": [{"port": int(other.url.rpartition(":")[2])}]}
        running.cluster.services = [
            {"metadata": {"name": name, "namespace": "podscale", "annotations": annotations},
             "spec": spec}
            for name, annotations in (
                ("billing", {"podscale.io/external-backend": yaml.safe_dump(entry)}),
                ("keda", {"podscale.io/external-backend": yaml.safe_dump(entry)}),
                ("bare", None),
            )
        ]  # fmt: skip
        other.thawed.clear()
        look(running)
        assert running.ask("/readyz").status == 200, "one that comes later is not waited for"
        other.thawed.set()
        eventually(lambda: "of_service" in names(running))
        told = look(running)
        assert list(told)[:2] == ["keda", "billing"]
        assert told["billing"]["shadowed"] == ["keda_lag, by the external backend keda"]
        assert "the file has a backend of its name" in told["Service podscale/keda"]["problem"]
        assert "annotation" in told["Service podscale/bare"]["problem"]
        assert get(running, "of_service").headers["X-Podscale-External-Backend"] == "billing"
        assert get(running, "keda_lag").headers["X-Podscale-External-Backend"] == "keda"
        running.cluster.services = []
        look(running)
        assert get(running, "of_service").status == 404


def test_no_api_is_adopted_that_there_is_nothing_for(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        assert KIND.adopts(running.served.adapter) == ("v1beta1.external.metrics.k8s.io",)


def test_the_file_is_read_again_and_a_bad_one_changes_nothing(tmp_path, backend) -> None:
    with adapter(tmp_path, backend) as running:
        text = running.file.read_text()
        running.file.write_text("backends: [{name: keda}]")
        eventually(
            lambda: "the changed backends file is refused" in running.ask("/readyz?verbose").body
        )
        assert get(running, "keda_lag").status == 200
        running.file.write_text(text.replace("name: keda", "name: renamed"))
        eventually(
            lambda: get(running, "keda_lag").headers.get("X-Podscale-External-Backend") == "renamed"
        )
