"""The chart's values: what the schema refuses, and what rendering makes of the rest."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import flags as adapter_flags
from hpa import flags as hpa_flags
from podscale.serving import flag_table, flags
from tests.integration.deploy.charted import helm, template
from tests.integration.deploy.rendered import ROOT, Manifest, granted, of_kind

pytestmark = pytest.mark.needs("helm")


def arguments(manifests: list[Manifest], part: str) -> flags.Flags:
    """Return the parsed command line of a part's Deployment."""
    found = next(
        each["spec"]["template"]["spec"]["containers"][0]["args"]
        for each in of_kind(manifests, "Deployment")
        if each["spec"]["template"]["spec"]["containers"][0]["args"][0] == part
    )
    parts: dict[str, Any] = {"adapter": adapter_flags, "hpa": hpa_flags}
    table = parts[part].TABLE
    if part == "hpa":
        # As podscale.cli.commands.hpa does: with the feed come the adapter's flags.
        table = (*adapter_flags.OWN, *adapter_flags.FEED, *table)
    parsed = flags.parse(found[1:], table)
    assert [*parts[part].problems(parsed), *flag_table.problems(parsed)] == []
    return parsed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "replica"),
        ({"prometheus": {"uri": "http://x"}}, "uri"),
        ({"prometheus": {"url": "x:9090"}}, 'prometheus.url is "x:9090", which is no http or'),
        (
            {"prometheus": {"url": "http://x:9090"}},
            'prometheus.url is "http://x:9090" and has a port',
        ),
        ({"prometheus": {"url": "http://[::1]:90"}}, "set prometheus.port to"),
        ({"prometheus": {"url": "http://x/p"}}, "and has a path, which prometheus.port 9090"),
        ({"prometheus": {"port": "abc"}}, 'prometheus.port is "abc", which is no port'),
        ({"prometheus": {"port": 99999}}, 'prometheus.port is "99999", which is no port'),
        ({"prometheus": {"path": "p"}}, 'prometheus.path is "p": it begins with a slash'),
        ({"service": {"port": 70000}}, "/service/port"),
        ({"listenPort": "https"}, "/listenPort"),
        ({"metricsRelistInterval": "1 minute"}, "metricsRelistInterval"),
        ({"hpa": {"mode": "watch"}}, "/hpa/mode"),
        ({"rules": {"custom": {"seriesQuery": "x"}}}, "/rules/custom"),
        ({"rules": {"custom": [{"query": "x"}]}}, "seriesQuery"),
        ({"extraArguments": ["metrics-max-age=2m"]}, "extraArguments"),
        ({"apiServices": {"external": "yes"}}, "apiServices/external"),
        ({"nodes": {"headroomMax": "cpu=8"}}, "/nodes/headroomMax"),
        (
            {"image": {"repository": "quay.io/coreos/k8s-prometheus-adapter-amd64"}},
            "which is prometheus-adapter's image and not podscale's: take image.repository",
        ),
        (
            {
                "image": {
                    "repository": "registry.example/adapter/prometheus-adapter",
                    "tag": "v0.12.0",
                }
            },
            "which is prometheus-adapter's image and not podscale's: take image.repository",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, values: object, said: str) -> None:
    done = helm(tmp_path, values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_security_context_of_the_adapters_chart_is_taken_once(tmp_path: Path) -> None:
    done = helm(tmp_path, {"securityContext": {"runAsUser": 10001, "runAsNonRoot": True}})
    assert done.stdout.count("runAsUser: 10001") == done.stdout.count("runAsUser:") > 0


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "http://prometheus.default.svc:9090"),
        ({"url": "http://u:p@x"}, "http://u:p@x:9090"),
        ({"url": "http://[::1]"}, "http://[::1]:9090"),
        ({"port": None}, "http://prometheus.default.svc"),
        ({"port": "9091", "path": "/p"}, "http://prometheus.default.svc:9091/p"),
        ({"url": "https://x:1/p", "port": ""}, "https://x:1/p"),
    ],
)
def test_the_url_of_prometheus_is_put_together(tmp_path: Path, values: object, url: str) -> None:
    manifests = template(tmp_path, {"prometheus": values})
    assert arguments(manifests, "adapter").text("prometheus-url") == url


def test_values_reach_the_command_line(tmp_path: Path) -> None:
    values = {
        "prometheus": {"url": "https://{{ .Release.Namespace }}.example", "port": 0, "path": "/p"},
        "listenPort": 8443,
        "logLevel": 4,
        "metricsRelistInterval": "2m",
        "extraArguments": ["--metrics-max-age=4m"],
        "hpa": {"enabled": True, "mode": "own", "metricsSource": "feed",
                "extraArguments": ["--horizontal-pod-autoscaler-tolerance=0.2"]},
    }  # fmt: skip
    manifests = template(tmp_path, values)
    adapter = arguments(manifests, "adapter")
    assert adapter.text("prometheus-url") == "https://ns.example/p"
    assert adapter.number("secure-port") == 8443
    assert adapter.number("v") == 4
    assert adapter.seconds("metrics-relist-interval") == 120.0
    assert adapter.seconds("metrics-max-age") == 240.0
    assert adapter.text("service") == "ns/one-podscale"
    hpa = arguments(manifests, "hpa")
    assert hpa.text("mode") == "own"
    assert hpa.text("prometheus-url") == "https://ns.example/p"
    assert hpa.seconds("horizontal-pod-autoscaler-tolerance") == 0.2
    assert hpa.text("leader-elect-resource-name") == "one-podscale-hpa"
    assert hpa.text("service") == "ns/one-podscale-hpa"


def test_by_default_the_hpa_controller_reads_prometheus_as_the_adapter_does(
    tmp_path: Path,
) -> None:
    how = ["--prometheus-header=X-Scope-OrgID=one", "--prometheus-auth-incluster",
           "--prometheus-token-file=/x", "--sources=/etc/sources.yaml"]  # fmt: skip
    values = {"hpa": {"enabled": True}, "extraArguments": ["--metrics-max-age=4m", *how],
              "rules": {"existing": "mine"}}  # fmt: skip
    manifests = template(tmp_path, values)
    adapter, hpa = (arguments(manifests, part) for part in ("adapter", "hpa"))
    assert hpa.text("metrics-source") == "feed"
    for flag in ("config", "prometheus-url", "metrics-relist-interval", "prometheus-header",
                 "prometheus-auth-incluster", "prometheus-token-file", "sources"):  # fmt: skip
        assert hpa.values[flag] == adapter.values[flag]
    assert "metrics-max-age" not in hpa.given
    for each in of_kind(manifests, "Deployment"):
        pod = each["spec"]["template"]["spec"]
        mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
        [config] = (one for one in pod["volumes"] if one["name"] == mounts["/etc/adapter"])
        assert config["configMap"]["name"] == "mine"


@pytest.mark.parametrize("source", ["feed", "api"])
def test_either_way_the_hpa_controller_may_ask_the_clusters_metrics_apis(
    tmp_path: Path, source: str
) -> None:
    manifests = template(tmp_path, {"hpa": {"enabled": True, "metricsSource": source}})
    assert arguments(manifests, "hpa").text("metrics-source") == source
    rights = granted(manifests, "one-podscale-hpa")
    assert rights >= {
        ("metrics.k8s.io", "pods", "", "list"),
        ("custom.metrics.k8s.io", "*", "", "get"),
        ("external.metrics.k8s.io", "*", "", "list"),
    }


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ({}, {"custom.metrics.k8s.io"}),
        ({"rules": {"external": [{"seriesQuery": "x"}]}},
         {"custom.metrics.k8s.io", "external.metrics.k8s.io"}),
        ({"rules": {"resource": {"window": "3m"}}}, {"custom.metrics.k8s.io", "metrics.k8s.io"}),
        ({"apiServices": {"custom": False, "external": True}}, {"external.metrics.k8s.io"}),
        ({"rules": {"external": [{"seriesQuery": "x"}]}, "apiServices": {"external": False}},
         {"custom.metrics.k8s.io"}),
        ({"hpa": {"enabled": True}}, {"custom.metrics.k8s.io", "hpa.podscale.io"}),
    ],
    ids=["default", "external", "resource", "external-only", "not-external", "hpa"],
)  # fmt: skip
def test_the_apis_registered_are_those_with_rules(
    tmp_path: Path, values: object, groups: set[str]
) -> None:
    found = of_kind(template(tmp_path, values), "APIService")
    assert {each["spec"]["group"] for each in found} == groups


def test_rules_are_put_together_as_in_the_adapters_chart(tmp_path: Path) -> None:
    rule = {"seriesQuery": "mine"}
    values = {"rules": {"custom": [rule], "external": [rule], "resource": {"window": "3m"}}}
    [config] = of_kind(template(tmp_path, values), "ConfigMap")
    rules = yaml.safe_load(config["data"]["config.yaml"])
    assert len(rules["rules"]) == 7
    assert rules["rules"][-1] == rule
    assert rules["externalRules"] == [rule]
    assert rules["resourceRules"] == {"window": "3m"}
    assert of_kind(template(tmp_path, {"rules": {"existing": "theirs"}}), "ConfigMap") == []


def test_the_vpa_is_installed_under_the_releases_names(tmp_path: Path) -> None:
    values = {
        "vpa": {"enabled": True, "updater": {"replicas": 1, "extraArguments": ["--min-replicas=1"]}}
    }
    manifests = template(tmp_path, values)
    parts = {
        each["metadata"]["name"]: each
        for each in of_kind(manifests, "Deployment")
        if "podscale-adapter" not in each["metadata"]["name"]
    }
    for part in ("recommender", "updater", "admission"):
        assert parts[f"one-podscale-{part}"]["metadata"]["namespace"] == "ns"
    assert parts["one-podscale-updater"]["spec"]["replicas"] == 1
    updater = parts["one-podscale-updater"]["spec"]["template"]["spec"]["containers"][0]
    assert "--min-replicas=1" in updater["args"]
    text = yaml.safe_dump_all(manifests)
    assert "@NAME" not in text
    accounts = {each["metadata"]["name"] for each in of_kind(manifests, "ServiceAccount")}
    bindings = [
        each
        for each in of_kind(manifests, "RoleBinding", "ClusterRoleBinding")
        if each["roleRef"]["name"] in {*parts, "one-podscale-vpa-targets"}
    ]
    assert len(bindings) >= 3 * 3
    for each in bindings:
        for subject in each["subjects"]:
            assert subject["name"] in accounts
            assert subject["namespace"] == "ns"
    services = {each["metadata"]["name"] for each in of_kind(manifests, "Service")}
    groups = {}
    for each in of_kind(manifests, "APIService"):
        groups[each["spec"]["group"]] = each["spec"]["service"]["name"]
    assert groups["vpa.podscale.io"] == "one-podscale-recommender"
    assert set(groups.values()) <= services
    crds = {each["spec"]["group"] for each in of_kind(manifests, "CustomResourceDefinition")}
    assert crds == {"autoscaling.k8s.io"}
    assert not of_kind(template(tmp_path, {}), "CustomResourceDefinition")


def test_shadow_holds_no_right_to_write(tmp_path: Path) -> None:
    for mode, may_write in (("shadow", False), ("replace", True), ("own", True)):
        manifests = template(tmp_path, {"hpa": {"enabled": True, "mode": mode}})
        role = next(
            each
            for each in of_kind(manifests, "ClusterRole")
            if each["metadata"]["name"] == "one-podscale-hpa"
        )
        writes = [
            rule
            for rule in role["rules"]
            if {"update", "patch"} & set(rule["verbs"])
            and not {"events", "apiservices"} & set(rule["resources"])
        ]
        assert bool(writes) is may_write


def test_the_rules_are_read_with_a_role_that_is_bound_to_nobody(tmp_path: Path) -> None:
    manifests = template(tmp_path, {})
    role = next(
        each
        for each in of_kind(manifests, "ClusterRole")
        if each["metadata"]["name"] == "one-podscale-doctor"
    )
    deployed = next(
        each
        for each in yaml.safe_load_all((ROOT / "config/rbac/adapter/readers.yaml").read_text())
        if each["metadata"]["name"] == "podscale:doctor"
    )
    assert str(role["rules"]) == str(deployed["rules"]).replace("accounts-podscale", "accounts-ns")
    bound = {each["roleRef"]["name"] for each in of_kind(manifests, "ClusterRoleBinding")}
    assert role["metadata"]["name"] not in bound
