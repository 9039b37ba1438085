"""What the manifests say: arguments our programs accept, least privilege, certificates."""

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from adapter import flags as adapter_flags
from hpa import flags as hpa_flags
from podscale.core import quantity
from podscale.nodes import flags as nodes_flags
from podscale.serving import flag_table, flags
from tests.integration.deploy.rendered import (
    DECISIONS,
    OVERLAYS,
    ROOT,
    Manifest,
    containers,
    extended,
    granted,
    of_kind,
    rendered,
    servers,
    verbs_on_decisions,
)
from tests.tools.required import require
from vpa.admission import flags as admission_flags
from vpa.recommender import flags as recommender_flags
from vpa.updater import flags as updater_flags

pytestmark = pytest.mark.needs("kubectl")

ALL = ("base", *OVERLAYS)
COMBINED = ("all-in-one", "serve-control")  # several parts in a process: test_combined
TABLES = {
    "adapter": (adapter_flags.TABLE, adapter_flags.problems),
    # As podscale.cli.parts does: what may read Prometheus has the flags for it.
    "hpa": ((*adapter_flags.OWN, *adapter_flags.FEED, *hpa_flags.TABLE), hpa_flags.problems),
    "recommender": (recommender_flags.TABLE, recommender_flags.problems),
    "updater": (updater_flags.TABLE, updater_flags.problems),
    "admission": (admission_flags.TABLE, admission_flags.problems),
    "nodes": (nodes_flags.TABLE, nodes_flags.problems),
}
POLICY, BINDING = "podscale-accounts-podscale", "ValidatingAdmissionPolicyBinding"
# Which flag says the first port that a container names, where it is not --secure-port.
PORTS = {"updater": "address", "admission": "port"}


@pytest.mark.parametrize("name", [name for name in ALL if name not in COMBINED])
def test_each_container_starts_with_arguments_that_its_program_accepts(name: str) -> None:
    found = list(servers(rendered(name)))
    assert found
    for container in found:
        part, *arguments = container["args"]
        table, problems = TABLES[part]
        parsed = flags.parse(arguments, table)
        assert parsed.warnings == ()
        # The webhook's certificate has upstream's flags, read by its own ``serving``.
        server = admission_flags.serving(parsed) if part == "admission" else parsed
        assert [*problems(parsed), *flag_table.problems(server)] == []
        said = parsed.values[PORTS.get(part, "secure-port")]
        assert str(said).lstrip(":") == str(container["ports"][0]["containerPort"])


@pytest.mark.parametrize("name", COMBINED)
def test_nodes_and_combined_parts_go_together_whichever_is_the_overlay(
    tmp_path: Path, name: str
) -> None:
    def named(manifests: list[Manifest]) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in manifests}

    one_way = named(extended(tmp_path, "nodes", "external", name))
    assert one_way == named(extended(tmp_path, name, "nodes"))
    assert ("ClusterRole", "podscale:page-reader") in one_way


def test_the_extender_serves_with_a_certificate_that_is_given_to_it(tmp_path: Path) -> None:
    manifests = extended(tmp_path, "nodes", "nodes-extender")
    (part,) = (each for each in servers(manifests) if each["args"][0] == "nodes")
    parsed = flags.parse(part["args"][1:], nodes_flags.TABLE)
    assert [*nodes_flags.problems(parsed), *flag_table.problems(parsed)] == []
    assert parsed.text("mode") == "extender"
    (mounted,) = (each for each in part["volumeMounts"] if each["name"] == "serving-cert")
    for flag in ("tls-cert-file", "tls-private-key-file"):
        assert Path(parsed.text(flag)).parent == Path(mounted["mountPath"])
    (deployment,) = (each for each in of_kind(manifests, "Deployment")
                     if each["metadata"]["name"] == "podscale-nodes")  # fmt: skip
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    secret = volumes["serving-cert"]["secret"]["secretName"]
    guide = (ROOT / "docs/nodes.md").read_text()
    assert f"`{secret}`" in guide
    services = {each["metadata"]["name"] for each in of_kind(manifests, "Service")}
    named = re.findall(r"urlPrefix: https://([a-z-]+)\.podscale\.svc", guide)
    assert set(named) == {"podscale-nodes"} <= services


@pytest.mark.parametrize("name", ALL)
def test_no_apiservice_skips_verification_and_each_names_a_service_that_exists(name: str) -> None:
    manifests = rendered(name)
    services = {each["metadata"]["name"] for each in of_kind(manifests, "Service")}
    for each in of_kind(manifests, "APIService"):
        assert not each["spec"].get("insecureSkipTLSVerify")
        assert each["spec"]["service"]["name"] in services


def test_the_base_registers_custom_metrics_only() -> None:
    groups = {each["spec"]["group"] for each in of_kind(rendered("base"), "APIService")}
    assert groups == {"custom.metrics.k8s.io"}


def test_the_service_of_the_decisions_selects_the_leader() -> None:
    service = next(
        each
        for each in of_kind(rendered("hpa-replace"), "Service")
        if each["metadata"]["name"] == "podscale-hpa"
    )
    assert service["spec"]["selector"]["leader.podscale.io/hpa"] == "true"


@pytest.mark.parametrize("name", ALL)
def test_no_role_may_do_everything_or_remove_pods_of_others(name: str) -> None:
    for role in of_kind(rendered(name), "ClusterRole", "Role"):
        # Its quota lets in pods of ballast's class alone.
        is_ballasts = role["metadata"].get("namespace") == "podscale-ballast"
        for rule in role["rules"]:
            assert "*" not in rule["verbs"]
            named = set(rule.get("resources", ()))
            if ("pods" in named and not is_ballasts) or "*" in named:
                assert "delete" not in rule["verbs"]
            assert not named & {"pods/exec", "clusterroles"}
            # A webhook of one's own changes every object of the cluster: ours is changed by name.
            if any("webhookconfigurations" in each for each in named):
                assert rule["resourceNames"] == ["vpa-webhook-config"]
                assert not {"create", "list", "watch", "delete"} & set(rule["verbs"])
            # Histories are made and replaced; other people's ConfigMaps lie beside them.
            assert "configmaps" not in named or not {"patch", "delete"} & set(rule["verbs"])
            # Evicting is the updater's work, and that of whoever makes room; of nobody else.
            if "pods/eviction" in named:
                assert role["metadata"]["name"] in ("podscale-updater", "podscale-nodes-room")
            if "secrets" in named and set(rule["verbs"]) != {"create"}:
                # create cannot be limited by name: the name is not known yet.
                assert rule["resourceNames"]


@pytest.mark.parametrize("name", ALL)
def test_who_may_change_the_webhooks_registration_finds_it_there(name: str) -> None:
    manifests = rendered(name)
    rules = [rule for role in of_kind(manifests, "ClusterRole") for rule in role["rules"]]
    named = {
        found
        for rule in rules
        if "mutatingwebhookconfigurations" in rule.get("resources", ())
        for found in rule["resourceNames"]
    }
    made = of_kind(manifests, "MutatingWebhookConfiguration")
    assert {each["metadata"]["name"] for each in made} == named
    # What `kubectl apply` does not name, it does not take away again.
    assert not [each for each in made if "webhooks" in each]


@pytest.mark.parametrize("name", ALL)
def test_every_container_has_a_limit_of_memory_with_room_for_what_docs_say(name: str) -> None:
    # docs/operations.md, Sizing: 100,000 pods, 500,000 series, 10,000 HPAs, 200,000 containers.
    any_part = 80 + 0.5 * 100_000 / 1024
    needed = {
        "adapter": any_part + 400, "hpa": any_part + 400 + 200, "recommender": any_part + 1500,
        "updater": any_part, "admission": any_part, "nodes": any_part, "serve": any_part + 400,
        "control": any_part + 200 + 1500, "run": any_part + 400 + 200 + 1500,
    }  # fmt: skip
    for container in containers(rendered(name)):
        limits = container["resources"]["limits"]
        if container["args"][:2] == ["nodes", "watchdog"]:
            continue  # it holds no pods
        assert limits.keys() == {"memory"}  # a limit of CPU would slow what others wait for
        mebibytes = quantity.parse(limits["memory"]).milli / 1000 / 2**20
        assert mebibytes >= 1.3 * needed[container["args"][0]]


def test_the_network_policy_opens_the_ports_of_the_containers_and_no_others() -> None:
    folder = ROOT / "deploy/kustomize/components/network-policy"
    [policy] = yaml.safe_load_all((folder / "policies.yaml").read_text())
    spec = policy["spec"]
    opened = {
        port
        for rule in spec["ingress"]
        for each in rule["ports"]
        for port in range(each["port"], each.get("endPort", each["port"]) + 1)
    }
    listened = {
        port["containerPort"]
        for name in ALL
        for container in servers(rendered(name))
        for port in container["ports"]
    }
    assert opened == listened
    assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "podscale"}
    # The plain ports are for one namespace.
    assert [rule.get("from") is None for rule in spec["ingress"]] == [True, False]


WITH_HPA = ("cert-manager", "ha", "hpa-own", "hpa-replace", "hpa-shadow")


def test_the_overlays_with_an_hpa_controller_are_these() -> None:
    names = {name: {each["metadata"]["name"] for each in of_kind(rendered(name), "Deployment")}
             for name in ALL}  # fmt: skip
    assert tuple(name for name in ALL if "podscale-hpa" in names[name]) == WITH_HPA


@pytest.mark.parametrize("name", WITH_HPA)
def test_the_hpa_controller_reads_prometheus_as_the_adapter_does(name: str) -> None:
    manifests = rendered(name)
    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"]
            for each in of_kind(manifests, "Deployment")}  # fmt: skip
    told, read = {}, {}
    for part in ("adapter", "hpa"):
        pod = pods[f"podscale-{part}"]
        [container] = pod["containers"]
        told[part] = flags.parse(container["args"][1:], TABLES[part][0])
        file = Path(told[part].text("config"))
        [volume] = (each["name"] for each in container["volumeMounts"]
                    if Path(each["mountPath"]) == file.parent)  # fmt: skip
        [source] = (each["configMap"]["name"] for each in pod["volumes"] if each["name"] == volume)
        [config] = (each for each in of_kind(manifests, "ConfigMap")
                    if each["metadata"]["name"] == source)  # fmt: skip
        read[part] = config["data"][file.name]
    assert told["hpa"].text("metrics-source") == "feed"
    assert read["hpa"] == read["adapter"]
    for flag in ("prometheus-url", "metrics-relist-interval"):
        assert told["hpa"].values[flag] == told["adapter"].values[flag]


@pytest.mark.parametrize("name", WITH_HPA)
def test_the_hpa_controller_may_ask_for_what_no_rule_covers_and_read_rules(name: str) -> None:
    rights = granted(rendered(name), "podscale-hpa")
    assert rights >= {
        ("metrics.k8s.io", "pods", "", "list"),
        ("custom.metrics.k8s.io", "*", "", "get"),
        ("external.metrics.k8s.io", "*", "", "list"),
        ("metrics.podscale.io", "metricrules", "", "watch"),
        ("metrics.podscale.io", "clustermetricrules", "", "list"),
    }


def test_the_network_policy_lets_out_whoever_reads_prometheus(tmp_path: Path) -> None:
    manifests = extended(tmp_path, "hpa-replace", "network-policy")
    [policy] = of_kind(manifests, "NetworkPolicy")
    out = {
        (peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port["port"])
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
        for port in rule["ports"]
    }
    readers = [each["spec"]["template"] for each in of_kind(manifests, "Deployment")]
    assert len(readers) == 2
    for each in readers:
        labels = each["metadata"]["labels"]
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        [url] = (word.partition("=")[2] for word in each["spec"]["containers"][0]["args"]
                 if word.startswith("--prometheus-url="))  # fmt: skip
        where = urlsplit(url)
        assert ((where.hostname or "").split(".")[1], where.port) in out


@pytest.mark.parametrize("name", ALL)
def test_only_a_part_that_runs_has_alerts(name: str) -> None:
    manifests = rendered(name)
    running = {each["metadata"]["name"] for each in of_kind(manifests, "Deployment")}
    for each in of_kind(manifests, "PrometheusRule", "ServiceMonitor", "PodMonitor"):
        # "Nobody leads" would be told for ever of what is not installed.
        assert each["metadata"]["name"] in running


def test_every_part_of_ha_is_watched() -> None:
    manifests = rendered("ha")
    for kind in ("PrometheusRule", "ServiceMonitor"):
        watched = {each["metadata"]["name"] for each in of_kind(manifests, kind)}
        assert watched == {each["metadata"]["name"] for each in of_kind(manifests, "Deployment")}


OF_THE_VPA = ("podscale-admission", "podscale-recommender", "podscale-updater")


def test_components_combine_in_an_overlay_of_ones_own(tmp_path: Path) -> None:
    manifests = extended(
        tmp_path, "base", "external", "resource", "hpa-replace", "vpa", "monitoring",
        "monitoring-hpa", "monitoring-vpa", "monitoring-nodes", "ha", "cert-manager",
        "cert-manager-hpa", "network-policy",
    )  # fmt: skip
    deployed = {each["metadata"]["name"]: each for each in of_kind(manifests, "Deployment")}
    assert deployed.keys() == {"podscale-adapter", "podscale-hpa", *OF_THE_VPA}
    for each in deployed.values():
        assert each["spec"]["replicas"] == 3
        # On three nodes, which have a replica each, no fourth finds a place.
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    alerts = {each["metadata"]["name"] for each in of_kind(manifests, "PrometheusRule")}
    assert alerts == {"podscale-adapter", "podscale-hpa", "podscale-vpa", "podscale-nodes"}
    [monitor] = of_kind(manifests, "PodMonitor")
    [part] = monitor["spec"]["selector"]["matchExpressions"]
    for name in OF_THE_VPA:
        template = deployed[name]["spec"]["template"]
        assert template["metadata"]["labels"][part["key"]] in part["values"]
        ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
        assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in ports


@pytest.mark.parametrize("name", ALL)
def test_who_takes_over_metrics_of_cpu_and_memory_has_rules_for_them(name: str) -> None:
    manifests = rendered(name)
    groups = {each["spec"]["group"] for each in of_kind(manifests, "APIService")}
    [config] = of_kind(manifests, "ConfigMap")
    rules = yaml.safe_load(config["data"]["config.yaml"])
    assert ("metrics.k8s.io" in groups) == ("resourceRules" in rules)


def test_the_first_page_names_every_overlay_that_takes_an_api_over() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    told = re.search(r"served them: (.*?) take (\S+) from .*?, and (.*?) (\S+) from KEDA", text)
    assert told
    of_usage, usage, of_external, external = told.groups()
    taken = {
        name: {each["spec"]["group"] for each in of_kind(rendered(name), "APIService")}
        for name in OVERLAYS
    }
    for names, group in ((of_usage, usage), (of_external, external)):
        takers = {name for name, groups in taken.items() if group in groups}
        assert set(re.findall(r"`([a-z-]+)`", names)) == takers


@pytest.mark.parametrize("name", ALL)
def test_decisions_are_read_by_who_may_look_at_a_namespace(name: str) -> None:
    manifests = rendered(name)
    served = {each["spec"]["group"] for each in of_kind(manifests, "APIService")}
    # What the group answers to, and no more: it cannot be watched.
    assert verbs_on_decisions(manifests) == dict.fromkeys(served & DECISIONS, ("get", "list"))


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_restarted_for_what_it_waits_for(name: str) -> None:
    # A replica waits for Prometheus, for CRDs, for the lists of a large cluster.
    for container in servers(rendered(name)):
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] in {"/livez", "/health-check"}


@pytest.mark.parametrize("name", ALL)
def test_a_replica_that_waits_unready_holds_up_no_drain(name: str) -> None:
    for each in of_kind(rendered(name), "PodDisruptionBudget"):
        assert each["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("name", ["cert-manager"])
def test_with_cert_manager_nothing_keeps_a_ca_of_its_own(name: str) -> None:
    manifests = rendered(name)
    for container in containers(manifests):
        assert not [word for word in container["args"] if word.startswith("--service=")]
        assert "--tls-cert-file=/var/run/serving-cert/tls.crt" in container["args"]
    for role in of_kind(manifests, "Role"):
        assert not [rule for rule in role["rules"] if "secrets" in rule["resources"]]
    kinds = of_kind(manifests, "Certificate")
    leaves = {each["metadata"]["name"]: each for each in kinds if not each["spec"].get("isCA")}
    for each in of_kind(manifests, "APIService"):
        source = each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        service = each["spec"]["service"]
        assert source == f"podscale/{service['name']}"
        names = leaves[service["name"]]["spec"]["dnsNames"]
        assert f"{service['name']}.{service['namespace']}.svc" in names


@pytest.mark.parametrize("name", ALL)
def test_the_policy_of_our_accounts_is_in_every_overlay_and_names_those_that_there_are(
    name: str,
) -> None:
    manifests = rendered(name)
    [policy] = (each for each in of_kind(manifests, "ValidatingAdmissionPolicy")
                if each["metadata"]["name"] == POLICY)  # fmt: skip
    assert POLICY in {each["spec"]["policyName"] for each in of_kind(manifests, BINDING)}
    [condition] = policy["spec"]["matchConditions"]
    for each in of_kind(manifests, "ServiceAccount"):
        account = f"system:serviceaccount:podscale:{each['metadata']['name']}"
        assert f"'{account}'" in condition["expression"]
    [role] = (each for each in of_kind(manifests, "ClusterRole")
              if each["metadata"]["name"] == "podscale-policy-reader")  # fmt: skip
    assert role["rules"][0]["resourceNames"] == [POLICY]


def test_the_class_of_headroom_comes_with_the_policy_that_keeps_it_to_its_namespace() -> None:
    for name in ALL:
        manifests = rendered(name)
        classes = {each["metadata"]["name"] for each in of_kind(manifests, "PriorityClass")}
        bound = {each["spec"]["policyName"] for each in of_kind(manifests, BINDING)}
        assert ("podscale-headroom" in classes) == ("podscale-headroom" in bound)


@pytest.mark.parametrize("name", ALL)
def test_a_namespace_set_over_the_manifests_is_refused(name: str, tmp_path: Path) -> None:
    """It would move what belongs to kube-system, and not the namespace in arguments."""
    over = ROOT / "deploy" / "kustomize" / ("base" if name == "base" else f"overlays/{name}")
    where = os.path.relpath(over, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"namespace: other\nresources: [{where}]\n")
    command = [str(require("kubectl")), "kustomize", "--load-restrictor=LoadRestrictionsNone"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "namespace transformation produces ID conflict" in done.stderr
