"""The adapter over real sockets: reloads, bad weather, bad input, readiness.

Prometheus and the cluster follow a script (``tests.conformance.adapter_world``); the
adapter runs as it does in a pod.
"""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_wire import wire

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
ONE = f"{CUSTOM}/namespaces/default/services/web/http_requests_per_second"
DEPTH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
# The script answers upstream's queries, so that is what is asked here.
PLAIN = ("--coalescing=off", "--sample-timestamps=off")
FAST = (*PLAIN, "--prometheus-timeout=1s")
# Answers the wider query of coalescing as well.
WIDE = [
    [
        "http_requests_total",
        [[{"kubernetes_namespace": "default", "kubernetes_pod_name": "web-1", "svc": "web"}, "1"]],
    ]
]


def run(directory, config, prometheus, *arguments):
    return wire(
        directory,
        config,
        lambda authorities: world.ScriptedCluster(
            world.part_c_resources(), rows("C1"), authorities
        ),
        prometheus,
        *arguments,
    )


@pytest.fixture
def adapter(tmp_path):
    """The adapter in the world of C.1 to C.3, with short deadlines."""
    with run(tmp_path, world.part_c_config(), world.part_c_prometheus(), *FAST) as running:
        running.rules = tmp_path / "rules.yaml"
        yield running


def eventually(fact, within_s=10.0):
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)


def sample(running, name):
    lines = running.ask("/metrics").body.splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
    return float(found[0]) if found else None


def test_changed_rules_are_in_force_without_a_restart(adapter):
    config = world.part_c_config()
    config["rules"][0]["name"]["as"] = "renamed"
    adapter.rules.write_text(json.dumps(config))
    renamed = ONE.replace("http_requests_per_second", "renamed")
    eventually(lambda: adapter.ask(renamed).status == 200)
    gone = adapter.ask(ONE)
    assert gone.status == 404
    assert gone.body["details"]["causes"][0]["reason"] in ("NoResourceLabel", "NoSeries")
    names = [r["name"] for r in adapter.ask(CUSTOM).body["resources"]]
    assert "services/renamed" in names
    assert "services/http_requests_per_second" not in names
    assert sample(adapter, 'podscale_adapter_config_reloads_total{result="success"}') == 1


def test_a_refused_reload_keeps_the_old_rules_and_says_so(adapter):
    before = adapter.rules.read_text()
    adapter.rules.write_text("rules: [{metricQuery: x}]")
    eventually(lambda: sample(adapter, "podscale_adapter_config_last_reload_successful") == 0)
    assert adapter.ask(ONE).status == 200
    ready = adapter.ask("/readyz?verbose")
    assert ready.status == 200
    assert "[+]rules-file ok: the changed rules file is refused" in ready.body
    assert sample(adapter, 'podscale_adapter_config_reloads_total{result="failure"}') == 1
    adapter.rules.write_text(before + " ")
    eventually(lambda: sample(adapter, "podscale_adapter_config_last_reload_successful") == 1)
    assert "refused" not in adapter.ask("/readyz?verbose").body


@pytest.mark.parametrize(("mode", "status"), [
    ("down500", 503), ("down503", 503), ("422", 500), ("400", 500), ("html", 503),
    ("nulldata", 503), ("cut", 503), ("partial", 503), ("hang", 504),
])  # fmt: skip
@pytest.mark.parametrize("path", [ONE, DEPTH, "/apis/metrics.k8s.io/v1beta1/nodes"])
def test_a_failing_prometheus_is_never_a_404_and_recovery_needs_no_restart(
    adapter, path, mode, status
):
    assert adapter.ask(path).status == 200
    adapter.prometheus.mode = mode
    failed = adapter.ask(path)
    assert failed.status == status
    assert failed.body["details"]["causes"][-1]["reason"]
    assert "boom" not in str(failed.body)
    assert adapter.ask("/livez").body == "ok"
    assert adapter.ask("/readyz").body == "ok"
    adapter.prometheus.mode = ""
    assert adapter.ask(path).status == 200


NEW = {"seriesQuery": "queue_depth", "name": {"as": "new"}, "metricsQuery": "x",
       "resources": {"template": "<<.Resource>>"}}  # fmt: skip


@pytest.mark.parametrize(("mode", "status"), [
    ("down503", 503), ("html", 503), ("cut", 503), ("hang", 504),
])  # fmt: skip
def test_a_start_in_an_outage_is_no_404_and_recovery_needs_no_relist(tmp_path, mode, status):
    prometheus = world.part_c_prometheus()
    prometheus.mode = mode
    arguments = (*FAST, "--series-timeout=200ms")
    with run(tmp_path, world.part_c_config(), prometheus, *arguments) as running:
        eventually(lambda: running.ask("/readyz").body == "ok")
        for path in (ONE, DEPTH, f"{CUSTOM}/namespaces/default/pods/*/http_requests_per_second"):
            failed = running.ask(path)
            assert failed.status == status
            assert failed.body["details"]["causes"][-1]["reason"].startswith("Prometheus")
        prometheus.mode = ""
        eventually(lambda: running.ask(ONE).status == 200, within_s=35.0)
        eventually(lambda: running.ask(DEPTH).status == 200, within_s=35.0)


@pytest.mark.parametrize("mode", ["down503", "hang"])
def test_a_reload_in_an_outage_takes_nothing_away_and_is_itself_reloaded_at_once(adapter, mode):
    names = {r["name"] for r in adapter.ask(CUSTOM).body["resources"]}
    adapter.prometheus.mode = mode
    config = world.part_c_config()
    for rate in (1, 2):  # the second is noticed while the first may still be asked for
        new = NEW | {"metricsQuery": f"rate(x[{rate}m])"}
        adapter.rules.write_text(json.dumps(config | {"rules": [new, *config["rules"]]}))
        counted = 'podscale_adapter_config_reloads_total{result="success"}'
        eventually(lambda: sample(adapter, counted) == rate, within_s=3.0)  # noqa: B023
    assert {r["name"] for r in adapter.ask(CUSTOM).body["resources"]} == names
    assert adapter.ask(ONE).status in (503, 504)
    adapter.prometheus.mode = ""
    assert adapter.ask(ONE).status == 200


def test_an_emptied_rules_file_is_refused(adapter):
    adapter.rules.write_text("")
    eventually(lambda: sample(adapter, "podscale_adapter_config_last_reload_successful") == 0)
    assert adapter.ask(ONE).status == 200
    assert adapter.ask(f"{CUSTOM}/podscale-rules").body["problem"] == (
        f"{adapter.rules}: the file is empty; "
        "write `rules: []` where MetricRules or external backends serve all metrics"
    )


def test_a_rule_that_fails_leaves_the_others_alone(adapter):
    assert adapter.ask(f"{CUSTOM}/namespaces/default/pods/web-1/scal").status == 500
    assert adapter.ask(f"{CUSTOM}/namespaces/default/pods/web-1/badq").status == 404
    assert adapter.ask(ONE).status == 200


def test_an_unchanged_snapshot_answers_with_the_same_bytes_and_no_query(tmp_path):
    path = f"{CUSTOM}/namespaces/default/pods/*/http_requests_per_second?labelSelector=app%3Dweb"
    prometheus = world.ScriptedPrometheus(rows("C3"), WIDE)
    arguments = ("--feed-max-age=60s", "--sample-timestamps=off")
    with run(tmp_path, world.part_c_config(), prometheus, *arguments) as running:
        first = running.ask(path)
        # The feed compares its first batch with an own query, a moment later.
        eventually(lambda: running.ask(path).calls == [])
        assert running.ask(path).body == first.body
    assert any(call.startswith("PROM") for call in first.calls)


def test_a_wrong_rules_file_ends_the_start_with_all_its_errors_and_status_2(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules:\n- serieQuery: x\n- seriesQuery: y\n  name: {matches: '('}\n")
    done = subprocess.run(
        [sys.executable, "-m", "podscale", "adapter", f"--config={file}"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    places = [line.rpartition("rules.yaml:")[2].split(":")[:2] for line in done.stderr.splitlines()]
    assert [line for line, _ in places] == ["2", "4"]
    assert all(column.isdigit() for _, column in places)
    assert "Traceback" not in done.stderr


def test_before_prometheus_answers_discovery_holds_a_placeholder(tmp_path):
    prometheus = world.ScriptedPrometheus([], [])
    with run(tmp_path, {}, prometheus) as running:
        for group in ("custom.metrics.k8s.io/v1beta1", "external.metrics.k8s.io/v1beta1",
                      "metrics.k8s.io/v1beta1"):  # fmt: skip
            names = [r["name"] for r in running.ask(f"/apis/{group}").body["resources"]]
            assert names == ["podscale-placeholder"]
        path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
        assert running.ask(path).status == 404


def test_samples_may_be_duplicated(tmp_path):
    double = [{"svc": "web"}, "1", None], [{"svc": "web"}, "2", None]
    prometheus = world.ScriptedPrometheus(rows("C3"), [["^sum", list(double)]])
    with run(tmp_path, world.part_c_config(), prometheus, *PLAIN) as running:
        (item,) = running.ask(ONE).body["items"]
    assert item["value"] == "2"  # the last, as upstream


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e30"])
def test_what_is_no_number_is_a_404_and_never_zero(tmp_path, value):
    prometheus = world.ScriptedPrometheus(rows("C3"), [["^sum", [[{"svc": "web"}, value, None]]]])
    with run(tmp_path, world.part_c_config(), prometheus, *PLAIN) as running:
        answer = running.ask(ONE)
    assert answer.status == 404
    assert answer.body["details"]["causes"][0]["reason"] == "NotANumber"


@pytest.mark.parametrize(("path", "options", "status"), [
    (f"{CUSTOM}/namespaces/default/pods/*/x?labelSelector=a%20b", {}, 400),
    (f"{CUSTOM}/namespaces/default/pods/*/x?fieldSelector=nonsense", {}, 400),
    (f"{CUSTOM}/namespaces/default/pods/*/x?metricLabelSelector=a%20b", {}, 500),
    (f"{CUSTOM}/namespaces/default/pods/*/x?timeout=nonsense", {}, 400),
    (f"{CUSTOM}/%00/%ff/%2e%2e", {}, 404),
    ("/apis/custom.metrics.k8s.io/v9/x", {}, 404),
    (DEPTH + "?watch=true", {}, 405),
    ("/apis/metrics.k8s.io/v1beta1/nodes?watch=1", {}, 405),
    ("/apis/metrics.k8s.io/v1beta1/pods/web-1", {}, 404),
    ("/apis/metrics.k8s.io/v1beta1/namespaces/default/nodes", {}, 404),
    (ONE, {"method": "PATCH"}, 405),
    (ONE, {"headers": {"Accept": "text/html"}}, 406),
    (ONE, {"token": "stolen"}, 401),
    (ONE, {"token": None}, 403),
])  # fmt: skip
def test_strange_requests_get_a_status(adapter, path, options, status):
    answer = adapter.ask(path, options)
    assert answer.status == status
    assert answer.body["kind"] == "Status"
    assert "Traceback" not in str(answer.body)


def test_usage_can_be_selected_by_fields_and_shown_as_a_table(adapter):
    pods = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"

    def names(query):
        return [i["metadata"]["name"] for i in adapter.ask(pods + query).body["items"]]

    assert names("") == ["db-0", "web-1", "web-2"]
    assert names("?fieldSelector=metadata.name%3Dweb-1") == ["web-1"]
    assert names("?fieldSelector=metadata.name!%3Dweb-1") == ["db-0", "web-2"]
    assert names("?labelSelector=app%3Ddb") == ["db-0"]
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = adapter.ask(f"{pods}/db-0", {"headers": headers}).body
    assert [row["cells"] for row in table["rows"]] == [["db-0", "1500m", "<unknown>", "5m0s"]]


def test_usage_of_all_namespaces_leaves_out_the_failing_one(adapter):
    items = adapter.ask("/apis/metrics.k8s.io/v1beta1/pods").body["items"]
    assert {item["metadata"]["namespace"] for item in items} == {"default"}


def test_a_slow_client_and_an_oversized_header_harm_nobody(adapter):
    slow = socket.create_connection(("127.0.0.1", adapter.port))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    large = http.client.HTTPSConnection("127.0.0.1", adapter.port, context=context)
    try:
        large.request("GET", "/livez", headers={"X-Large": "x" * 65536})
        response = large.getresponse()
        assert response.status == 431
        assert json.loads(response.read())["kind"] == "Status"
        assert adapter.ask("/livez").body == "ok"
    finally:
        large.close()
        slow.close()


def test_requests_at_the_same_time_share_a_query(tmp_path):
    prometheus = world.ScriptedPrometheus(rows("C3"), WIDE)
    arguments = ("--sample-timestamps=off",)
    with run(tmp_path, world.part_c_config(), prometheus, *arguments) as running:
        running.ask("/livez")
        running.prometheus.calls.clear()
        seen = []

        def ask():
            connection = http.client.HTTPSConnection("127.0.0.1", running.port, context=_trusting())
            connection.request("GET", ONE, headers={"Authorization": "Bearer admin"})
            seen.append(connection.getresponse().status)
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queries = list(running.prometheus.calls)
    assert seen == [200] * 20
    assert len(queries) <= 2


def _trusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
