"""What people and programs hand over beside tidy manifests: nothing crashes, nothing is lost
in silence.
"""

import json
import textwrap
from typing import Any

import pytest
import yaml

from adapter import flags as adapter_flags
from adapter.discovery.mapping import PresumingMapper
from adapter.rules import config
from adapter.rules.ruleset import read_rules
from adapter.sources.sources_file import read_sources
from podscale.migrate.documents import Unreadable, objects
from podscale.migrate.reader import migrate_all, render, rules_yaml
from podscale.migrate.rules_source import find
from podscale.serving import flags
from tests.kit.migrating import migrate

QUEUE: dict[str, str] = {"serverAddress": "http://p:9090", "query": "sum(q)", "threshold": "5"}


def scaled(name: str = "web", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 1,
            "triggers": [{"type": "prometheus", "metadata": QUEUE}],
        }
        | spec,
    }


def told(remarks: Any) -> str:
    return "\n".join(f"{each.about}: {each.text}" for each in remarks)


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("a: 0x_\n", "rules.yaml:1:4: not YAML: '0x_' is no int", id="no-number"),
    pytest.param("a: !!bool maybe\n", "rules.yaml:1:4: not YAML: 'maybe' is no bool", id="no-bool"),
    pytest.param(f"a: {'9' * 5000}\n", "999...' is no int", id="a-number-of-5000-digits"),
    pytest.param(f"a: 0x{'f' * 5000}\n", "fff...' is no int", id="as-long-in-hexadecimal"),
    pytest.param("a: &a [*a]\n", "an anchor that holds itself", id="circle"),
    pytest.param("- a\n", "a document that is no mapping (list)", id="list"),
    pytest.param("a: 1\n\tb: 2\n", "rules.yaml:2:1: not YAML: ", id="tab"),
])  # fmt: skip
def test_what_cannot_be_read_is_a_sentence_with_a_place(text, said):
    with pytest.raises(Unreadable) as refused:
        objects(text, "rules.yaml")
    assert said in str(refused.value)


def test_aliases_that_stand_for_too_much_are_refused(monkeypatch):
    monkeypatch.setattr("podscale.migrate.documents._MOST_VALUES", 1_000)
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 12))]
    with pytest.raises(Unreadable, match="more than 1000 values, aliases counted"):
        objects("\n".join(lines))


def test_scalars_and_keys_are_read_as_kubernetes_reads_them():
    (found,) = objects("a: 2024-99-99\nb: 2024-01-02\nc: 12:30\nd: =\ne: 0644\n2: two\non: x\n")
    assert found == {"a": "2024-99-99", "b": "2024-01-02", "c": "12:30", "d": "=", "e": 420,
                     "2": "two", "true": "x"}  # fmt: skip


def test_escapes_of_json_become_characters():
    assert objects(json.dumps({"kind": "Owl 🦉"})) == [{"kind": "Owl 🦉"}]


def test_windows_line_ends_and_a_byte_order_mark_change_nothing():
    text = yaml.safe_dump(scaled())
    windows = "\ufeff" + text.replace("\n", "\r\n")
    assert render(migrate(windows)) == render(migrate(text))


def test_items_of_a_typed_list_are_of_its_kind():
    items = [{key: value for key, value in scaled().items() if key not in ("kind", "apiVersion")}]
    listed = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObjectList", "items": items}
    assert migrate(json.dumps(listed)).read == ["ScaledObject shop/web"]


def test_an_authentication_may_stand_in_another_file():
    trigger = {"type": "prometheus", "metadata": QUEUE, "authenticationRef": {"name": "key"}}
    authentication = {
        "kind": "TriggerAuthentication",
        "metadata": {"name": "key", "namespace": "shop"},
        "spec": {"secretTargetRef": [{"parameter": "bearerToken", "name": "s", "key": "token"}]},
    }
    outcome = migrate_all([
        (yaml.safe_dump(scaled(triggers=[trigger])), "web.yaml"),
        (yaml.safe_dump(authentication), "key.yaml"),
    ])  # fmt: skip
    assert "--prometheus-token-file=/etc/prometheus-credentials/s/token" in outcome.flags
    assert not outcome.lost


@pytest.mark.parametrize(("first", "second"), [
    pytest.param({"serverAddress": "http://a:9090"}, {"serverAddress": "http://b:9090"},
                 id="servers"),
    pytest.param({"customHeaders": "X-Scope-OrgID=red"}, {"customHeaders": "x-scope-orgid=blue"},
                 id="tenants"),
    pytest.param({"queryParameters": "dedup=true"}, {}, id="parameters"),
])  # fmt: skip
def test_each_trigger_asks_its_own_prometheus_across_files(first, second):
    files = [
        (yaml.safe_dump(scaled(name, triggers=[
            {"type": "prometheus", "metadata": QUEUE | metadata}])), f"{name}.yaml")
        for name, metadata in (("web", first), ("api", second), ("again", first))
    ]  # fmt: skip
    outcome = migrate_all(files)
    text = rules_yaml(outcome)
    sources = read_sources(yaml.safe_dump({"sources": outcome.sources}), "sources.yaml").sources
    _, rules = read_rules(text, "rules.yaml", PresumingMapper(), frozenset(sources))
    assert [rule.source for rule in rules.external] == ["", "prometheus-2", ""]
    (other,) = sources.values()
    own = adapter_flags.prometheus_options(flags.parse(outcome.flags, adapter_flags.TABLE))
    for options, metadata in ((own, first), (other, second)):
        assert options.url.partition("?")[0] == metadata.get(
            "serverAddress", QUEUE["serverAddress"]
        )
        headers = ",".join("=".join(each) for each in options.headers)
        assert headers.lower() == metadata.get("customHeaders", "").lower()
    assert not outcome.lost


ADAPTER = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "adapter"},
           "spec": {"template": {"spec": {"containers": [{
               "name": "adapter", "image": "prometheus-adapter:v0.12.0",
               "args": ["--prometheus-url=http://own:9090"]}]}}}}  # fmt: skip
VALUES = {"prometheus": {"url": "http://own"}, "rules": {"default": False, "custom": []}}


@pytest.mark.parametrize("adapter", [ADAPTER, VALUES], ids=["deployment", "values"])
def test_the_prometheus_of_an_adapter_in_the_input_stays_the_default(adapter):
    files = [(yaml.safe_dump(adapter), "adapter.yaml")] + [
        (yaml.safe_dump(scaled(name, triggers=[
            {"type": "prometheus", "metadata": QUEUE | {"serverAddress": url}}])), f"{name}.yaml")
        for name, url in (("web", "http://thanos"), ("api", "http://own:9090"))
    ]  # fmt: skip
    outcome = migrate_all(files)
    assert [rule.get("source") for rule in outcome.rules["externalRules"]] == ["prometheus-2", None]
    assert outcome.sources == [{"name": "prometheus-2", "url": "http://thanos"}]
    assert not [each for each in outcome.flags if each.startswith("--prometheus-url")]


def test_a_formula_over_two_servers_is_told():
    triggers = [
        {
            "type": "prometheus",
            "name": name,
            "metadata": QUEUE | {"serverAddress": f"http://{name}"},
        }
        for name in ("a", "b")
    ]
    outcome = migrate(yaml.safe_dump(scaled(triggers=triggers, advanced={
        "scalingModifiers": {"formula": "a + b", "target": "5"}})))  # fmt: skip
    assert "is over triggers of several Prometheus servers" in told(outcome.lost)
    assert not outcome.manifests


@pytest.mark.parametrize(("spec", "release", "least", "said"), [
    pytest.param({"minReplicaCount": 0}, "1.37", 0, "the HPA scales to zero", id="external"),
    pytest.param({"minReplicaCount": 0}, "1.36", 1, "HPAScaleToZero on from 1.37", id="release"),
    pytest.param({"minReplicaCount": 0, "triggers": [{"type": "cpu", "metadata": {"value": "5"}}]},
                 "1.38", 1, "only an External or Object metric", id="usage-alone"),
    pytest.param({"minReplicaCount": 2}, "1.37", 2, "", id="not-zero"),
])  # fmt: skip
def test_zero_replicas_stay_zero_where_an_hpa_may_have_them(spec, release, least, said):
    outcome = migrate_all([(yaml.safe_dump(scaled(**spec)), "web.yaml")], release=release)
    assert outcome.manifests[0]["spec"]["minReplicas"] == least
    about = [e for e in (*outcome.lost, *outcome.differs) if e.about.endswith("minReplicaCount")]
    assert said in told(about)
    assert bool(about) is bool(said)


@pytest.mark.parametrize(("change", "said"), [
    ({"awsRegion": "eu"}, "awsRegion eu signs requests"),
    ({"identityOwner": "operator"}, "identityOwner operator signs"),
    ({"authModes": "bearer"}, "authModes bearer without an authenticationRef"),
    ({"serverAddressFromEnv": "URL"}, "metadata.serverAddressFromEnv of a prometheus trigger has"),
    ({"serverAddress": ""}, "it has no serverAddress"),
])  # fmt: skip
def test_what_a_trigger_says_of_its_prometheus_is_not_lost_in_silence(change, said):
    triggers = [{"type": "prometheus", "metadata": QUEUE | change}]
    assert said in told(migrate(yaml.safe_dump(scaled(triggers=triggers))).lost)


def test_a_tenant_of_cortex_is_its_header():
    triggers = [{"type": "prometheus", "metadata": QUEUE | {"cortexOrgID": "red"}}]
    outcome = migrate(yaml.safe_dump(scaled(triggers=triggers)))
    assert "--prometheus-header=X-Scope-OrgID=red" in outcome.flags
    assert not outcome.lost


@pytest.mark.parametrize(("spec", "said"), [
    ({"boundServiceAccountToken": [{"parameter": "bearerToken", "serviceAccountName": "a"}]},
     "boundServiceAccountToken of key: start the adapter with --prometheus-auth-incluster"),
    ({"podIdentity": {"provider": "azure-workload"}}, "podIdentity azure-workload of key: put a"),
    ({"filePath": "/mnt"}, "filePath of key: mount the credentials as files"),
    ({"secretTargetRef": [{"parameter": "customAuthHeader", "name": "s", "key": "k"}]},
     "--prometheus-header=NAME=$(VALUE), and set VALUE in its env from the Secret s"),
    ({"podIdentity": {"provider": "none"}}, ""),
])  # fmt: skip
def test_credentials_are_told_with_their_equal(spec, said):
    triggers = [{"type": "prometheus", "metadata": QUEUE, "authenticationRef": {"name": "key"}}]
    authentication = {"kind": "TriggerAuthentication", "spec": spec,
                      "metadata": {"name": "key", "namespace": "shop"}}  # fmt: skip
    text = yaml.safe_dump_all([scaled(triggers=triggers), authentication])
    lost = migrate(text).lost
    assert said in told(lost)
    assert bool(lost) is bool(said)


@pytest.mark.parametrize(("spec", "said"), [
    ({"maxReplicas": 3}, "web: unknown key 'maxReplicas', which KEDA ignores; did you mean 'max"),
    ({"advanced": {"horizontalPodAutoscalerConfig": {"behaviour": {}}}},
     "web: advanced.horizontalPodAutoscalerConfig: unknown key 'behaviour', which KEDA ignores"),
    ({"triggers": [{"type": "cpu", "metadata": {"value": "5"}, "metric": "Value"}]},
     "triggers[0]: unknown key 'metric', which KEDA ignores; did you mean 'metricType'?"),
    ({"pause": True}, "unknown key 'pause', which KEDA ignores"),
    ({"triggers": [{"type": "cpu", "metadata": {"value": "5", "averageValue": "5"}}]},
     "metadata.averageValue of a cpu trigger has no equal here"),
])  # fmt: skip
def test_unknown_keys_of_a_scaled_object_are_named(spec, said):
    assert said in told(migrate(yaml.safe_dump(scaled(**spec))).lost)


def test_cpu_in_bytes_is_told():
    trigger = {"type": "cpu", "metricType": "AverageValue", "metadata": {"value": "512Mi"}}
    outcome = migrate(yaml.safe_dump(scaled(triggers=[trigger])))
    assert "512Mi of a cpu trigger is in bytes: write cores, like 500m" in told(outcome.differs)
    trigger["type"] = "memory"
    assert "in bytes" not in told(migrate(yaml.safe_dump(scaled(triggers=[trigger]))).differs)


def test_objects_of_the_vpa_are_taken_as_they_are():
    text = "kind: VerticalPodAutoscaler\nmetadata: {name: web, namespace: shop}\n"
    assert migrate(text).read == ["VerticalPodAutoscaler shop/web, taken as it is"]


def test_metrics_of_two_scaled_objects_never_share_a_name_in_silence():
    other = [{"type": "prometheus", "metadata": QUEUE | {"query": "sum(other)"}}]
    files = [
        (yaml.safe_dump(scaled("b-c", "a")), "1.yaml"),
        (yaml.safe_dump(scaled("c", "a-b", triggers=other)), "2.yaml"),
    ]
    assert "external metric a-b-c-0: 2 triggers come to this name" in told(
        migrate_all(files).refused
    )
    assert not migrate_all(files[:1] * 2).refused  # the same one twice is no other


@pytest.mark.parametrize(("spec", "said"), [
    pytest.param({"minReplicaCount": "{{ .Values.min }}"},
                 "spec.minReplicaCount: '{{ .Values.min }}' is no whole number", id="template"),
    pytest.param({"fallback": {"replicas": "many"}}, "spec.fallback.replicas: 'many' is no",
                 id="fallback"),
    pytest.param({"maxReplicaCount": 2.5}, "spec.maxReplicaCount: 2.5 is no", id="fraction"),
    pytest.param({"scaleTargetRef": {"deploymentName": "web"}}, "deploymentName is of KEDA 1",
                 id="keda-1"),
])  # fmt: skip
def test_a_manifest_that_keda_would_not_take_is_refused_with_its_field(spec, said):
    outcome = migrate(yaml.safe_dump(scaled(**spec)))
    assert said in told(outcome.refused)
    assert not outcome.manifests


@pytest.mark.parametrize("threshold", ["0", "-1", "many", ""])
def test_a_threshold_that_is_no_target_carries_nothing_over(threshold):
    triggers = [{"type": "prometheus", "metadata": QUEUE | {"threshold": threshold}}]
    outcome = migrate(yaml.safe_dump(scaled(triggers=triggers)))
    assert "is no number above 0" in told(outcome.lost)
    assert not outcome.manifests


@pytest.mark.parametrize(("setting", "said"), [
    ({"namespace": "f"}, "metadata.namespace (a query parameter"),
    ({"namespace": "0"}, "metadata.namespace (a query parameter"),
    ({"timeout": 0}, "timeout 0 ms of this trigger"),
    ({"unsafeSsl": "true"}, "unsafeSsl: give the CA"),
    ({"activationThreshold": "f0"}, "activationThreshold f0"),
    ({"unsafeSsl": "f", "activationThreshold": "0"}, ""),
])  # fmt: skip
def test_only_a_switch_that_is_off_is_not_told(setting, said):
    metadata = QUEUE | {"query": "sum(q) or vector(0)"} | setting
    trigger = {"type": "prometheus", "metadata": metadata, "useCachedMetrics": False}
    outcome = migrate(yaml.safe_dump(scaled(triggers=[trigger])))
    remarks = [each for each in (*outcome.lost, *outcome.differs) if "triggers[0]" in each.about]
    assert [said in each.text for each in remarks] == [True] * bool(said), told(remarks)


@pytest.mark.parametrize("form", ["Utilization", "AverageValue"])
@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_an_amount_of_usage_that_is_no_target_carries_nothing_over(form, value):
    triggers = [{"type": "cpu", "metricType": form, "metadata": {"value": value}}]
    outcome = migrate(yaml.safe_dump(scaled(triggers=triggers)))
    assert f"metadata.value {value!r} of a cpu trigger is no target" in told(outcome.lost)
    assert not outcome.manifests


@pytest.mark.parametrize(("written", "is_paused"), [
    ("true", True), ("True", True), ("1", True), ("yes", True), ("", True),
    ("false", False), ("0", False), (None, False),
])  # fmt: skip
def test_a_paused_object_becomes_a_paused_hpa_and_says_so(written, is_paused):
    manifest = scaled()
    manifest["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": written}
    outcome = migrate(yaml.safe_dump(manifest))
    annotations = outcome.manifests[0]["metadata"].get("annotations", {})
    assert annotations == ({"podscale.io/paused": "true"} if is_paused else {})
    assert ("the HPA below is paused as well" in told(outcome.differs)) is is_paused


def test_one_that_was_unpaused_by_its_annotation_can_be_paused_as_told():
    manifest = scaled()
    manifest["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "false"}
    steps = migrate(yaml.safe_dump(manifest)).steps
    assert [step for step in steps if step.startswith("kubectl annotate --overwrite ")]


def test_a_direction_that_is_paused_stays_so():
    manifest = scaled()
    manifest["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "True"}
    (hpa,) = migrate(yaml.safe_dump(manifest)).manifests
    assert hpa["spec"]["behavior"]["scaleDown"] == {"selectPolicy": "Disabled"}


def test_deleting_the_scaled_object_must_not_restore_a_size_under_the_new_hpa():
    outcome = migrate(yaml.safe_dump(scaled(advanced={"restoreToOriginalReplicaCount": True})))
    (patch,) = (step for step in outcome.steps if step.startswith("kubectl patch scaledobject web"))
    deletion = next(step for step in outcome.steps if "kubectl delete scaledobject" in step)
    assert outcome.steps.index(patch) < outcome.steps.index(deletion)
    assert "kubectl patch" not in "\n".join(migrate(yaml.safe_dump(scaled())).steps)


@pytest.mark.parametrize(("query", "series_query"), [
    ("sum(jobs_waiting) or vector(0)", "up"),
    ("(sum(jobs_waiting) or vector(0)) / 4", "up"),
    ("absent(jobs_waiting)", "up"),
    ("scalar(sum(jobs_waiting)) + 1", "up"),
    ("sum(a) or sum(b)", '{__name__=~"a|b"}'),
    ('max(sum(a{ns="x",q="1"}) or b{ns="x"})', '{__name__=~"a|b",ns="x"}'),
    ('sum(a{q="1"}) or sum(a)', "a"),
    ("sum(a) or sum(b) or vector(0)", "up"),
    ("vector(1) * sum(a)", "a"),
    ("sum(a) unless sum(b)", "a"),
    ('sum({job="a"}) or sum(b)', "up"),
    ("max_over_time(a[10m])", "a"),
    ("max_over_time(a[11m])", "up"),
    ("max_over_time(sum(a)[1h:1m])", "up"),
    ("sum(a offset 1h)", "up"),
    ("sum(rate(a[5m] offset 6m))", "up"),
    ("sum(a) * 1___0", "up"),  # nothing that anybody reads
    ("sum(jobs_waiting)", "jobs_waiting"),
])  # fmt: skip
def test_a_query_with_a_default_is_served_while_its_series_are_not_there(query, series_query):
    triggers = [{"type": "prometheus", "metadata": QUEUE | {"query": query}}]
    outcome = migrate(yaml.safe_dump(scaled(triggers=triggers)))
    assert outcome.rules["externalRules"][0]["seriesQuery"] == series_query


@pytest.mark.parametrize("version", ["v2beta1", "v2beta2"])
def test_hpas_of_versions_that_are_gone_are_not_taken_as_they_are(version):
    hpa = {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler",
           "metadata": {"name": "web"}}  # fmt: skip
    assert "is served by no current release" in told(migrate(yaml.safe_dump(hpa)).refused)
    hpa["apiVersion"] = "autoscaling/v1"
    assert not migrate(yaml.safe_dump(hpa)).refused


def test_rules_are_found_among_other_config_maps_with_their_own_lines():
    maps = [("grafana", "a: 1\n"), ("one", "rules: []\n"), ("two", "rules: []\nrule: 1\n")]
    text = "---\n".join(
        f"kind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  config.yaml: |\n"
        + "".join(f"    {line}\n" for line in content.splitlines())
        for name, content in maps
    )
    found = find(text, "all.yaml")
    assert found.form == "ConfigMap one"
    refused = told(migrate(text, "all.yaml").refused)
    assert "ConfigMap two: all.yaml:18:5: unknown key 'rule'" in refused


def test_rules_in_quotes_are_told_by_their_own_lines():
    config = {"kind": "ConfigMap", "metadata": {"name": "one", "namespace": "m"},
              "data": {"config.yaml": "rules: []\nrule: 1\n"}}  # fmt: skip
    refused = told(migrate(json.dumps(config), "one.json").refused)
    assert "one.json: ConfigMap m/one: config.yaml:2:1: unknown key 'rule'" in refused


def test_a_limit_of_memory_is_told():
    container = {"image": "vpa-updater:1", "resources": {"limits": {"memory": "64Mi"}}}
    manifest = {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}
    assert "resources.limits.memory 64Mi was" in told(migrate(yaml.safe_dump(manifest)).differs)


def test_what_stands_beside_a_program_stays_and_is_no_loss():
    kinds = ("Service", "ClusterRole", "APIService", "ServiceMonitor")
    text = "---\n".join(f"kind: {kind}\nmetadata: {{name: x}}\n" for kind in kinds)
    outcome = migrate(text)
    assert (outcome.lost, outcome.read) == ([], [])
    assert outcome.kept == [f"{kind} x" for kind in kinds]
    assert "# not read, and stays as it is:\n# - Service x" in render(outcome)


def test_a_program_under_another_name_is_told_what_names_are_known():
    text = "kind: Deployment\nmetadata: {name: x}\nspec: {template: {spec: {containers: [{}]}}}\n"
    assert "the name of no image is known (prometheus-adapter, vpa-" in told(migrate(text).lost)


@pytest.mark.parametrize("start", ["", "# rules\n", "---\n", "\n"])
@pytest.mark.parametrize("indent", ["   ", "        "])
def test_places_in_a_config_map_are_those_of_the_file(start, indent):
    rules = start + RULES_OF_A_MAP
    block = textwrap.indent(rules, indent)
    text = f"kind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  config.yaml: |\n{block}"
    found = find(text, "cm.yaml")
    assert config.read(found.text)[0].config == config.read(rules)[0].config
    lines = text.splitlines()
    places = [(each.line, each.column) for each in config.read(found.text)[1]]
    words = [lines[line - 1][column - 1 :].partition(":")[0] for line, column in places]
    assert words == ["resourses", "2"]


RULES_OF_A_MAP = """\
rules:
- seriesQuery: a
  resourses: {}
  metricsQuery: |2
      sum(a)

        by (b)
resourceRules:
  window: 2
"""
