"""``podscale migrate`` at inputs that hold nothing to compare, or nothing at all."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from podscale.cli.commands.migrate import command

NOWHERE = "http://127.0.0.1:1"
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
  metrics:
  - type: External
    external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "5"}}
"""


def migrate(directory: Path, text: str, *words: str) -> Result:
    file = directory / "input.yaml"
    file.write_text(text)
    return CliRunner().invoke(command, [str(file), *words])


def test_an_empty_list_of_kubectl_asks_for_the_namespace(tmp_path):
    done = migrate(tmp_path, "apiVersion: v1\nitems: []\nkind: List\n")
    assert done.exit_code == 1
    assert "input.yaml: is it the right namespace" in done.output


def test_a_whole_call_without_a_place_in_the_input_ends_with_2(tmp_path):
    done = migrate(tmp_path, "kind: ScaledObject\nwhen: 0x_\n")
    assert done.exit_code == 2
    assert "input.yaml:2:7: not YAML: '0x_' is no int" in done.output


def test_a_plain_hpa_is_compared_by_replay(tmp_path):
    done = migrate(tmp_path, HPA, "--prometheus-url", NOWHERE)
    assert done.exit_code == 0, done.output
    assert "not compared: HorizontalPodAutoscaler shop/web: podscale replay hpa/NAME" in done.output


def test_a_proxy_that_cannot_be_used_is_told_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "socks5://proxy:1080")
    done = migrate(tmp_path, HPA, "--prometheus-url", "http://prometheus:9090")
    assert done.exit_code == 2
    assert "only http and https proxies can be used" in done.output


@pytest.mark.parametrize("image", [
    "prometheus-adapter", "vpa-recommender", "vpa-updater", "vpa-admission-controller",
])  # fmt: skip
@pytest.mark.parametrize("written", [["--odd"], ["--odd=1"], ["--odd", "1"], ["-odd_one", "x"]])
def test_a_flag_that_would_be_refused_is_not_in_what_is_to_be_applied(tmp_path, image, written):
    arguments = ["--v=2", *written, "--log-flush-frequency=5s"]
    container = {"name": "c", "image": f"example.org/{image}:1", "args": arguments}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "one", "namespace": "monitoring"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    applied = migrate(tmp_path, yaml.safe_dump(manifest), "--only", "manifests")
    assert applied.exit_code == 1
    (document,) = yaml.safe_load_all(applied.stdout)
    (after,) = document["spec"]["template"]["spec"]["containers"]
    assert after["args"] == ["--v=2", "--log-flush-frequency=5s"]
    assert "left out, since they would be refused: 1" in applied.stderr
    whole = migrate(tmp_path, yaml.safe_dump(manifest))
    assert "# left out of what is below:" in whole.output
    assert "odd" in whole.output
    container["args"] = after["args"]
    assert migrate(tmp_path, yaml.safe_dump(manifest)).exit_code == 0


@pytest.mark.parametrize(("image", "flag", "good"), [
    ("prometheus-adapter", "--metrics-relist-interval=1", "--metrics-relist-interval=1m"),
    ("vpa-recommender", "--recommender-interval=60", "--recommender-interval=60s"),
    ("vpa-updater", "--eviction-tolerance=half", "--eviction-tolerance=0.5"),
    ("vpa-admission-controller", "--reload-cert=maybe", "--reload-cert=true"),
    ("kube-controller-manager", "--horizontal-pod-autoscaler-tolerance=abc",
     "--horizontal-pod-autoscaler-tolerance=0.1"),
])  # fmt: skip
@pytest.mark.parametrize("joined", [True, False])
def test_a_value_that_would_be_refused_is_not_in_what_is_to_be_applied(
    tmp_path, image, flag, good, joined
):
    def of(flag: str) -> Result:
        arguments = ["--v=2", *([flag] if joined else flag.split("=")), "--v=3"]
        container = {"name": "c", "image": f"example.org/{image}:1", "args": arguments}
        if image == "kube-controller-manager":
            container |= {"command": [image, *arguments], "args": []}
        return migrate(tmp_path, yaml.safe_dump({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "one", "namespace": "monitoring"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }))  # fmt: skip

    done = of(flag)
    assert done.exit_code == 1
    name, _, value = flag.partition("=")
    assert f'invalid argument "{value}" for "{name}" flag' in done.output
    assert "it would be refused" in done.output
    applied = [line for line in done.output.splitlines() if not line.startswith("#")]
    assert not [line for line in applied if name in line]
    assert of(good).exit_code == 0


RULES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: adapter-config, namespace: monitoring}
data:
  config.yaml: |
    rules:
    - seriesQuery: 'http_requests_total{pod!=""}'
      seriesFilters: [{isNot: "^x"}]
      resources: {template: <<.Resource>>}
      name: {matches: "^(.*)_total$"}
      metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
    externalRules:
    - seriesQuery: queue_depth
      source: infra
      resources: {namespaced: false}
      metricsQuery: sum(<<.Series>>)
"""


def test_rules_become_objects_in_the_files_order(tmp_path):
    file = tmp_path / "configmap.yaml"
    file.write_text(RULES)
    done = CliRunner().invoke(command, ["rules", str(file), "--only", "manifests"])
    assert done.exit_code == 0
    custom, external = yaml.safe_load_all(done.stdout)
    assert (custom["kind"], custom["metadata"]["name"]) == ("ClusterMetricRule", "custom-000")
    assert custom["spec"] == {
        "type": "Custom",
        "seriesQuery": 'http_requests_total{pod!=""}',
        "seriesFilters": [{"isNot": "^x"}],
        "resources": {"template": "<<.Resource>>"},
        "name": {"matches": "^(.*)_total$"},
        "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
    }
    assert external["spec"] == {
        "type": "External",
        "seriesQuery": "queue_depth",
        "source": "infra",
        "resources": {"namespaced": False},
        "metricsQuery": "sum(<<.Series>>)",
    }


def test_rules_that_do_not_read_become_nothing(tmp_path):
    file = tmp_path / "configmap.yaml"
    file.write_text(RULES.replace("^(.*)_total$", "(?=x)"))
    done = CliRunner().invoke(command, ["rules", str(file)])
    assert done.exit_code == 2
    assert "configmap.yaml:10:" in done.output
    assert "ClusterMetricRule" not in done.output


def test_rules_that_are_refused_have_their_queries_read_in_the_same_run(tmp_path):
    done = migrate(tmp_path, "rules:\n- {seriesQuery: a, metricsQuery: 'sum(', resourses: {}}\n")
    assert "unknown key 'resourses'" in done.output
    assert "input.yaml:2:34: QueryInvalid" in done.output


@pytest.mark.parametrize(("query", "is_broken"), [
    ("sum(<<.Series>>{<<.LabelMatchers>>}", True),
    ("sum(<<.Series>>{<<.LabelMatcherz>>}) by (<<.GroupBy>>)", True),
    ("<<.Series>>{<<.LabelMatchers>>}", False),  # SeveralSeries: it answers
])  # fmt: skip
def test_a_broken_query_is_no_success(tmp_path, query, is_broken):
    rule = {"seriesQuery": "a", "metricsQuery": query, "resources": {"template": "<<.Resource>>"}}
    done = migrate(tmp_path, json.dumps({"rules": [rule]}))
    assert done.exit_code == is_broken
    head = "# may answer nothing, with" if is_broken else "# will behave"
    lines = done.output.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(head))
    assert ("QueryInvalid" in lines[at + 1]) is is_broken


def test_a_file_without_rules_is_no_success(tmp_path):
    done = migrate(tmp_path, "rules: []\n")
    assert done.exit_code == 1
    assert "input.yaml:1:8: NoRules: there are no rules" in done.output


LABELLED = {"resources": {"template": "<<.Resource>>"}}


@pytest.mark.parametrize(("rules", "finding"), [
    ([LABELLED | {"seriesQuery": "a", "metricsQuery": "sum("}], "QueryInvalid"),
    ([LABELLED | {"seriesQuery": "a b", "metricsQuery": "sum(a)"}], "SeriesQueryInvalid"),
    ([{"seriesQuery": "a", "metricsQuery": "sum(<<.Series>>)"}], "NoResourceLabel"),
    ([], "NoRules"),
])  # fmt: skip
def test_rules_as_objects_are_found_broken_as_the_file_is(tmp_path, rules, finding):
    text = json.dumps({"rules": rules})
    done = migrate(tmp_path, text, "-o", "json")
    file = str(tmp_path / "input.yaml")
    objects = CliRunner().invoke(command, ["rules", file, "-o", "json"])
    assert done.exit_code == objects.exit_code == 1
    of_file, of_objects = (json.loads(each.stdout) for each in (done, objects))
    assert of_objects["broken"] == of_file["broken"]
    assert of_file["broken"][0]["text"].startswith(f"{finding}: ")
    told = CliRunner().invoke(command, ["rules", file]).output
    assert ("kubectl apply" in told) is bool(rules)


def test_a_file_of_comments_is_told_to_have_no_rules(tmp_path):
    done = migrate(tmp_path, "# rules: later\n")
    assert done.exit_code == 1
    assert "there are no rules in" in done.output


@pytest.mark.parametrize(("text", "code", "said"), [
    ("rule: []\n", 2, "input.yaml:1:1: unknown key 'rule'; did you mean 'rules'?"),
    ("{}\n", 1, "NoRules: there are no rules"),
    ("resources: {}\nreplicaCount: 1\n", 1, "ignored (migrate does not"),  # some chart's values
])  # fmt: skip
def test_a_rules_file_is_recognised_by_keys_that_are_nearly_its_own(tmp_path, text, code, said):
    done = migrate(tmp_path, text)
    assert done.exit_code == code
    assert said in done.output
