"""One decision from two files: every version is read, and findings are told before deciding."""

import json

import pytest
import yaml
from click.testing import CliRunner

from podscale.cli.commands.hpa import evaluate
from podscale.cli.evaluation.manifest import cautions
from podscale.cli.evaluation.observation import (
    EvaluationError,
    decide_files,
    plain_hpa,
    written_hpa,
)

NOW = 1_750_000_000.0
V1 = """
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: MAX
  targetCPUUtilizationPercentage: 50
"""
V2 = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, labels: {app: web}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""
OBSERVED = """
scale: {replicas: 2, selector: app=web}
pods:
- {name: web-0, requests: {app: {cpu: 1}}}
- {name: web-1, requests: {app: {cpu: 1}}}
metrics: [{pods: {web-0: 900m, web-1: 950m}, age: 10s}]
"""


def test_an_old_version_is_decided_on() -> None:
    body = decide_files(V1.replace("MAX", "10"), OBSERVED, release="1.37", now=NOW)
    assert body["status"]["replicas"] == 4
    assert body["status"]["first_reason"] == "MetricAboveTarget"


def test_what_the_server_would_refuse_is_refused() -> None:
    with pytest.raises(EvaluationError, match=r"spec\.maxReplicas: 0 must be at least 1"):
        decide_files(V1.replace("MAX", "0"), OBSERVED, release="1.37", now=NOW)


HPA = V2.replace("maxReplicas", "minReplicas: 1.0\n  maxReplicas")


@pytest.mark.parametrize("text", [
    f"kind: Deployment\n---{HPA}",
    json.dumps({"kind": "List", "items": [{"kind": "Pod"}, yaml.safe_load(HPA)]}, indent="\t"),
    json.dumps(yaml.safe_load(HPA), indent="\t"),
], ids=["several-documents", "List", "tabs"])  # fmt: skip
def test_the_one_hpa_of_a_file_is_decided(text: str) -> None:
    assert decide_files(text, OBSERVED, release="1.37", now=NOW)["status"]["replicas"] == 4


def test_one_of_several_hpas_has_to_be_chosen() -> None:
    with pytest.raises(EvaluationError, match="2 documents are in it; give one of them") as refused:
        decide_files(f"{V2}---{V2}", OBSERVED, release="1.37", now=NOW)
    assert refused.value.line == V2.count("\n") + 2


def test_another_kind_of_object_is_refused() -> None:
    with pytest.raises(EvaluationError, match="apps/v1 is not a version"):
        decide_files("apiVersion: apps/v1", OBSERVED, release="1.37", now=NOW)


@pytest.mark.parametrize(
    ("hpa", "seen", "words"),
    [
        (V2.replace("maxReplicas", "minReplica: 2\n  maxReplicas"), OBSERVED,
         "the HPA: unknown field spec.minReplica"),
        (V2.replace("maxReplicas", "maxReplicas: 3\n  maxReplicas"), OBSERVED,
         "the HPA: spec.maxReplicas is there twice"),
        (V2.replace("autoscaling/v2", "autoscaling/v2beta2"), OBSERVED, "removed with Kubernetes"),
        ("apiVersion: v1\nkind: Pod", OBSERVED, "this is a Pod"),
        ("kind: [a\n}", OBSERVED, "the HPA: not YAML"),
        ("[" * 5000, OBSERVED, "the HPA: nested too deeply"),
        (V2, OBSERVED.replace("replicas: 2", "replicas: -2"), "-2 replicas"),
        (V2, OBSERVED.replace("age: 10s", "age: -10s"), "metrics[0].age: -10s lies ahead"),
        (V2, OBSERVED.replace("web-1, req", "web-0, req"), "pods: web-0 is there twice"),
        (V2, OBSERVED.replace("[{pods: {web-0: 900m, web-1: 950m}, age: 10s}]", "[{value: 3}]"),
         "metrics[0]: cpu is of type Resource and is answered by pods (or error), not by value"),
        (V2, OBSERVED.replace("10s}]", "10s}, {value: 3}]"),
         "metrics: 2 metrics given but spec.metrics has 1"),
        (V2, OBSERVED.replace("name: web-1", "redy: true, name: web-1"),
         "the observation: unknown field pods[1].redy; did you mean ready?"),
        (V2, OBSERVED.replace("scale:", "scal: 1\nscale:"),
         "the observation: unknown field scal; did you mean scale?"),
        (V2, "", "the observation: nothing is in it"),
        (V2, V2, "the observation: this is a HorizontalPodAutoscaler"),
    ],
)  # fmt: skip
def test_what_kubectl_would_refuse_is_refused_by_its_place(hpa, seen, words) -> None:
    with pytest.raises(EvaluationError) as refused:
        decide_files(hpa, seen, release="1.37", now=NOW)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("hpa", "place"),
    [
        (V2.replace("maxReplicas", "maxReplicas: 3\n  maxReplicas"), (8, 1)),
        ("kind: [a\n}", (2, 1)),
        (V2.replace("maxReplicas", "maxReplica"), (7, 3)),
    ],
)
def test_a_problem_carries_its_place_where_that_is_known(hpa: str, place: tuple[int, int]) -> None:
    with pytest.raises(EvaluationError) as refused:
        decide_files(hpa, OBSERVED, release="1.37", now=NOW)
    assert (refused.value.line, refused.value.column) == place


@pytest.mark.parametrize(
    ("was", "wrong"),
    [
        ("replicas: 2", "replicas: two"),
        ("{cpu: 1}}}\n- {name: web-1", "{cpu: 1x}}}\n- {name: web-1"),
        ("name: web-1", "name: [web-1]"),
        ("web-1: 950m", "web-1: 950q"),
        ("age: 10s", "age: 10 s"),
        ("{web-0: 900m, web-1: 950m}", "7"),
        ("pods: {web-0", "podz: {web-0"),
    ],
)
def test_every_field_of_the_observation_is_placed_in_its_line(was: str, wrong: str) -> None:
    seen = OBSERVED.replace(was, wrong, 1)
    assert seen != OBSERVED
    with pytest.raises(EvaluationError) as refused:
        decide_files(V2, seen, release="1.37", now=NOW)
    changed = [number for number, (one, other)
               in enumerate(zip(OBSERVED.split("\n"), seen.split("\n"), strict=True), 1)
               if one != other]  # fmt: skip
    assert [refused.value.line] == changed
    assert refused.value.column > 0


def test_an_unknown_field_names_the_nearest_that_there_is() -> None:
    with pytest.raises(EvaluationError, match="did you mean minReplicas"):
        decide_files(V2.replace("maxR", "minReplica: 2\n  maxR"), OBSERVED, release="1.37", now=NOW)


def test_metrics_that_the_observation_leaves_out_are_told_to_be_left_out() -> None:
    seen = OBSERVED.partition("metrics:")[0]
    body = decide_files(V2, seen, release="1.37", now=NOW)
    assert body["status"]["first_reason"] == "MetricNoData"
    assert "the observation does not tell of it" in " ".join(body["status"]["sentences"])


def test_a_target_of_cpu_in_bytes_is_remarked_on(tmp_path) -> None:
    target = "target: {type: AverageValue, averageValue: 500Mi}"
    hpa = V2.replace("target: {type: Utilization, averageUtilization: 50}", target)
    found = cautions(written_hpa(plain_hpa(hpa)))
    assert found == ["the target of cpu is 500Mi, which is in bytes: write cores (500m)"]
    assert cautions(written_hpa(plain_hpa(hpa.replace("cpu", "memory")))) == []
    assert cautions(written_hpa(plain_hpa(V2))) == []
    for name, text in (("hpa.yaml", hpa), ("seen.yaml", OBSERVED)):
        (tmp_path / name).write_text(text)
    words = ["-f", str(tmp_path / "hpa.yaml"), "--observation", str(tmp_path / "seen.yaml")]
    done = CliRunner().invoke(evaluate, words)
    assert done.exit_code == 0
    assert "hpa.yaml: the target of cpu is 500Mi" in done.stderr


def test_every_problem_of_an_observation_is_told_at_once() -> None:
    observation = """
scale: {replicas: x, statusReplicas: -2}
pods:
- {name: web-0, phase: Runing, started: 5}
- {name: web-0, redy: true}
- {nam: web-1}
metrics:
- {pods: {web-0: 25bananas}, age: -3s}
recommendations: [{replicas: 5}]
"""
    with pytest.raises(EvaluationError) as refused:
        decide_files(V2, observation, release="1.37", now=0.0)
    text = str(refused.value)
    for said in (
        "pods[1].redy", "pods[2].nam", "$.scale.replicas", "$.pods[0].phase", "$.pods[0].started",
        "field `name`", "field `age`", "-2 replicas", "web-0 is there twice", "-3s lies ahead",
        "25bananas",
    ):  # fmt: skip
        assert text.count(said) == 1, text
    assert (refused.value.line, refused.value.column) == (5, 17)
