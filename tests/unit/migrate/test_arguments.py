"""Programs as they are started: command lines in every form that pflag and Kubernetes allow."""

from typing import Any

import pytest
import yaml

from podscale.migrate.outcome import MigrationOutcome
from tests.kit.migrating import migrate

IMAGES = {
    "prometheus-adapter": "example.org/prometheus-adapter/prometheus-adapter:v0.12.0",
    "vpa-recommender": "example.org/autoscaling/vpa-recommender:1.5.0",
}


def deployment(program: str, **container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": program, "namespace": "monitoring"},
        "spec": {"template": {"spec": {"containers": [
            {"name": "main", "image": IMAGES[program], **container}]}}},
    }  # fmt: skip


def started(outcome: MigrationOutcome) -> list[str]:
    (manifest,) = outcome.manifests
    (container,) = yaml.safe_load(yaml.safe_dump(manifest))["spec"]["template"]["spec"][
        "containers"
    ]
    return [*container["command"], *container["args"]]


@pytest.mark.parametrize(("program", "container", "expected"), [
    pytest.param(
        "prometheus-adapter",
        {"args": ["--config", "/etc/adapter/config.yaml", "--secure-port", "6443", "-v", "4"]},
        ["/adapter", "--config", "/etc/adapter/config.yaml", "--secure-port", "6443", "-v", "4"],
        id="values-behind-their-flags",
    ),
    pytest.param("prometheus-adapter", {"args": ["/adapter", "--v=4"]}, ["/adapter", "--v=4"],
                 id="the-chart-names-the-program-first"),
    pytest.param("vpa-recommender", {"command": ["./recommender", "--memory-saver"],
                                     "args": ["--kube-api-qps", "9"]},
                 ["/recommender", "--memory-saver", "--kube-api-qps", "9"], id="command-and-args"),
    pytest.param("vpa-recommender", {}, ["/recommender"], id="nothing"),
])  # fmt: skip
def test_a_deployment_keeps_its_arguments_word_by_word(program, container, expected):
    assert started(migrate(yaml.safe_dump(deployment(program, **container)))) == expected


def test_flags_with_underscores_are_known():
    manifest = deployment("prometheus-adapter", args=["--metrics_relist_interval=1m"])
    assert not migrate(yaml.safe_dump(manifest)).lost


def test_what_is_kept_is_what_the_program_takes():
    words = ["--logging-format=json", "--audit-log-path=-", "--logtostderr", "--v=4"]
    outcome = migrate(yaml.safe_dump(deployment("prometheus-adapter", args=words)))
    assert started(outcome) == ["/adapter", *words[1:]]
    assert "--logging-format" in outcome.left_out[0].text
    assert "--audit-log-path: accepted but ignored" in outcome.lost[0].text


def test_a_program_behind_a_shell_is_not_guessed_at():
    script = "exec /adapter --config=/etc/adapter/config.yaml"
    manifest = deployment("prometheus-adapter", command=["/bin/sh", "-c"], args=[script])
    outcome = migrate(yaml.safe_dump(manifest))
    assert not outcome.manifests
    assert "starts prometheus-adapter by a shell" in outcome.refused[0].text


def test_the_replica_sets_of_a_deployment_are_left_to_it():
    manifest = deployment("prometheus-adapter") | {"kind": "ReplicaSet"}
    manifest["metadata"]["ownerReferences"] = [
        {"kind": "Deployment", "name": "prometheus-adapter", "controller": True}
    ]
    outcome = migrate(yaml.safe_dump(manifest))
    assert (outcome.read, outcome.manifests) == ([], [])
    assert outcome.lost[0].text == "Deployment prometheus-adapter makes it: give that one"


@pytest.mark.parametrize("image", [
    "registry.local:5000/team/podscale:1.2", "registry.local:5000/team/podscale",
    "podscale:1.2", "podscale",
])  # fmt: skip
def test_the_chart_gets_an_image_whose_registry_has_a_port(image):
    values = "prometheus: {url: http://p}\nrules: {default: false}\n"
    (written,) = migrate(values, image=image).manifests
    assert isinstance(written["image"], dict)
    repository, tag = written["image"]["repository"], written["image"]["tag"]
    assert f"{repository}:{tag}" == (image if image.endswith("1.2") else f"{image}:latest")


def test_rules_of_an_existing_config_map_are_not_those_of_the_chart():
    outcome = migrate("prometheus: {url: http://p}\nrules: {existing: my-rules}\n")
    assert "Helm values: rules: in the ConfigMap my-rules (rules.existing)" in outcome.read
    check, upgrade = outcome.steps  # the rules are looked at before anything changes
    assert check == "check the rules: podscale doctor --config-map NAMESPACE/my-rules"
    assert upgrade.startswith("helm upgrade ")


def controller_manager(*words: str) -> dict[str, Any]:
    container = {"image": "example.org/kube-controller-manager:v1.36.0", "command": [*words]}
    meta = {"name": "kube-controller-manager"}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


PERIOD = "--horizontal-pod-autoscaler-sync-period"


@pytest.mark.parametrize("words", [
    pytest.param([f"{PERIOD}=10s", "--controllers=*,tokencleaner"], id="equals"),
    pytest.param([PERIOD, "10s", "--controllers", "*,tokencleaner"], id="behind"),
    pytest.param([f"{PERIOD.replace('-', '_').replace('__', '--')}=10s",
                  "--controllers=*", "--controllers=tokencleaner"], id="underscores-and-repeated"),
])  # fmt: skip
def test_flags_of_the_controller_manager_are_read_in_every_form(words):
    outcome = migrate(yaml.safe_dump(controller_manager(*words)))
    assert outcome.flags == ["--mode=replace", f"{PERIOD}=10s"]
    assert "--controllers=*,tokencleaner,-horizontal-pod-autoscaler-controller" in outcome.steps[1]
    assert "--controllers=*,tokencleaner again" in outcome.back[0]


def test_a_controller_manager_without_flags_is_read():
    assert migrate(yaml.safe_dump(controller_manager())).flags == ["--mode=replace"]


def test_a_controller_manager_behind_a_shell_is_read():
    script = f"exec /usr/local/bin/kube-controller-manager '{PERIOD}=10s' 1>>/var/log/kcm.log 2>&1"
    outcome = migrate(yaml.safe_dump(controller_manager("/bin/sh", "-c", script)))
    assert outcome.flags == ["--mode=replace", f"{PERIOD}=10s"]


def test_a_pod_of_a_deployment_is_not_taken_for_one():
    pod = deployment("prometheus-adapter")["spec"]["template"] | {"kind": "Pod"}
    assert not migrate(yaml.safe_dump(pod)).manifests
