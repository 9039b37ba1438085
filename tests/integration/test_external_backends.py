"""An adapter that is not ours behind us: its external metrics come through, its failures too.

It serves TLS, wants the token that the cluster made for the reader's account, and can hang, lie
and be gone. Our own rules and it share one ``external.metrics.k8s.io``.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
import yaml
from aiohttp import web

from podscale.core.metrics import ExternalMetric, ExternalSamples, Unavailable
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_wire import wire
from tests.integration.test_adapter import PLAIN, eventually
from tests.integration.test_sources import Source, serving

ROOT = "/apis/external.metrics.k8s.io/v1beta1"
TOKEN = "made-for-the-reader"
LABEL = "scaledobject.keda.sh/name"


class Cluster(world.ScriptedCluster):
    """Makes tokens for the reader's account, and for no other."""

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.made: list[object] = []

    def _review(self, path: str, body: dict) -> web.Response:
        if path == "/api/v1/namespaces/podscale/serviceaccounts/reader/token":
            self.made.append(body["spec"])
            return web.json_response({**body, "status": {"token": TOKEN}}, status=201)
        return super()._review(path, body)


class Backend(Source):
    """Serves some metrics; ``answers`` overrides what it says."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("0", (), {"Authorization": f"Bearer {TOKEN}"})
        self.listed = names
        self.asked: list[str] = []
        self.answers: dict[str, object] = {}

    def answer(self, path: str, form: dict[str, str]) -> dict[str, object]:
        if path == ROOT:
            return {"resources": [{"name": name, "namespaced": True} for name in self.listed]}
        name = path.rpartition("/")[2]
        self.asked.append(f"{path}?{form}")
        item = {"metricName": name, "metricLabels": {"of": "keda"},
                "timestamp": "2026-01-31T10:00:00Z", "value": "4500m"}  # fmt: skip
        found = self.answers.get(name, {"items": [item]})
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
def adapter(tmp_path: Path, backend: Backend, **more: object):
    entry = {"name": "keda", "url": backend.url, "caFile": str(tmp_path / "backend-ca.crt"),
             "serviceAccount": "podscale/reader", "metrics": ["s0-*"], "timeout": "1s",
             "selectorLabel": LABEL}  # fmt: skip
    file = tmp_path / "backends.yaml"
    file.write_text(yaml.safe_dump({"backends": [{**entry, **more}]}))
    rule = {"seriesQuery": "own_queue", "resources": {"namespaced": False},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})"}  # fmt: skip
    prometheus = world.ScriptedPrometheus(
        [("own_queue", [{"__name__": "own_queue"}])], [("own_queue", [[{}, "7", None]])]
    )
    with wire(
        tmp_path, {"externalRules": [rule]},
        lambda authorities: Cluster(world.part_c_resources(), rows("C1"), authorities),
        prometheus, *PLAIN, "--authorization-cluster-first=false", f"--external-backends={file}",
    ) as running:  # fmt: skip
        eventually(lambda: names(running) == {"own_queue", "keda_lag"})
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
