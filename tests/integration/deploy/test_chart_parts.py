"""The chart's parts together: what values say of all of them, and what they may."""

from pathlib import Path

import pytest
import yaml

from adapter.sources.sources_file import read_sources
from tests.integration.deploy.charted import helm, template
from tests.integration.deploy.rendered import (
    DECISIONS,
    ROOT,
    Manifest,
    containers,
    of_kind,
    rendered,
    verbs_on_decisions,
)

pytestmark = pytest.mark.needs("helm", "kubectl")

EVERY_PART = {
    "hpa": {"enabled": True, "mode": "own"},
    "vpa": {"enabled": True},
    "nodes": {"enabled": True, "mode": "ballast"},
    "metricRules": {"enabled": True, "namespaces": ["shop", "bar-*"]},
    "rules": {"resource": {"window": "3m"}},
}


def test_users_objects_outlive_the_release(tmp_path: Path) -> None:
    crds = of_kind(template(tmp_path, EVERY_PART), "CustomResourceDefinition")
    assert len(crds) == 5
    for each in crds:
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_rules_as_objects_come_with_their_rights_and_who_may_ask(tmp_path: Path) -> None:
    manifests = template(tmp_path, EVERY_PART)
    rules = next(e for e in of_kind(manifests, "ConfigMap") if "sources.yaml" in e["data"])
    named = read_sources(rules["data"]["sources.yaml"], "f")
    assert named.for_own_rule("", "bar-1")[1] is not None
    assert named.for_own_rule("", "other")[1] is None
    roles = {each["metadata"]["name"]: each for each in of_kind(manifests, "ClusterRole")}
    edit = next(role for name, role in roles.items() if name.endswith("metric-rules-edit"))
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    arguments = [
        argument
        for each in of_kind(manifests, "Deployment")
        for container in each["spec"]["template"]["spec"]["containers"]
        for argument in container["args"]
    ]
    assert "--sources=/etc/adapter/sources.yaml" in arguments


def test_what_is_said_of_pods_is_true_of_every_parts(tmp_path: Path) -> None:
    tolerations = [{"key": "infra", "operator": "Exists"}]
    affinity: dict[str, object] = {"nodeAffinity": {}}
    values = EVERY_PART | {
        "image": {"repository": "registry.example/podscale", "tag": "1", "pullSecrets": ["key"],
                  "pullPolicy": "Always"},
        "priorityClassName": "platform", "nodeSelector": {"pool": "infra"},
        "tolerations": tolerations, "affinity": affinity, "runAsUser": 1000,
        "podSecurityContext": {"runAsNonRoot": True, "fsGroup": 2000},
        "securityContext": {"readOnlyRootFilesystem": True},
        "hostNetwork": {"enabled": True}, "dnsPolicy": "ClusterFirstWithHostNet",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "extraVolumes": [{"name": "extra", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
        "podLabels": {"mesh": "off"}, "podAnnotations": {"scan": "no"},
        "customLabels": {"team": "sre"}, "customAnnotations": {"owner": "sre"},
        "deploymentAnnotations": {"reload": "no"},
        "strategy": {"type": "Recreate", "rollingUpdate": None},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                                       "whenUnsatisfiable": "DoNotSchedule"}],
    }  # fmt: skip
    found = of_kind(template(tmp_path, values), "Deployment")
    assert len(found) == 7
    for each in found:
        assert each["spec"]["strategy"] == {"type": "Recreate"}
        assert each["metadata"]["annotations"] == {"owner": "sre", "reload": "no"}
        assert each["metadata"]["labels"]["team"] == "sre"
        template_ = each["spec"]["template"]
        selector = each["spec"]["selector"]["matchLabels"].items()
        wanted = {"mesh": "off", "team": "sre"}.items() | selector
        assert wanted <= template_["metadata"]["labels"].items()
        assert template_["metadata"]["annotations"] == {"owner": "sre", "scan": "no"}
        pod = template_["spec"]
        said = {key: pod[key] for key in (
            "priorityClassName", "nodeSelector", "tolerations", "affinity", "hostNetwork",
            "dnsPolicy", "dnsConfig", "imagePullSecrets", "securityContext",
        )}  # fmt: skip
        assert said == {
            "priorityClassName": "platform", "nodeSelector": {"pool": "infra"},
            "tolerations": tolerations, "affinity": affinity, "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "imagePullSecrets": [{"name": "key"}],
            "securityContext": pod["securityContext"] | {"runAsNonRoot": True, "fsGroup": 2000},
        }  # fmt: skip
        [spread] = pod["topologySpreadConstraints"]
        assert spread["topologyKey"] == "zone"
        labels = spread["labelSelector"]["matchLabels"].items()
        assert labels <= template_["metadata"]["labels"].items()
        assert {"name": "extra", "emptyDir": {}} in pod["volumes"]
        [container] = pod["containers"]
        assert container["image"] == "registry.example/podscale:1"
        assert container["imagePullPolicy"] == "Always"
        assert container["securityContext"]["runAsUser"] == 1000
        assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in container["env"]
        assert {"POD_NAME", "POD_NAMESPACE"} <= {name["name"] for name in container["env"]}
        assert {"name": "extra", "mountPath": "/extra"} in container["volumeMounts"]
        if container["args"][:2] != ["nodes", "watchdog"]:
            assert container["startupProbe"]["httpGet"]["path"] != "/readyz"


def test_a_parts_only_pod_holds_up_no_drain(tmp_path: Path) -> None:
    one = {"replicas": 1}
    values = {
        **one,
        "hpa": {"enabled": True} | one,
        "nodes": {"enabled": True} | one,
        "vpa": {"enabled": True, "recommender": one, "updater": one, "admission": one},
    }
    budgets = of_kind(template(tmp_path, values), "PodDisruptionBudget")
    assert budgets == []
    named = {"podDisruptionBudget": {"minAvailable": None, "maxUnavailable": 1}}
    budgets = of_kind(template(tmp_path, values | named), "PodDisruptionBudget")
    assert [each["spec"]["maxUnavailable"] for each in budgets] == [1] * 6
    assert not [each for each in budgets if "minAvailable" in each["spec"]]
    for each in budgets:
        assert each["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert len(of_kind(template(tmp_path, EVERY_PART), "PodDisruptionBudget")) == 6


def test_every_api_is_asked_at_its_services_port(tmp_path: Path) -> None:
    manifests = template(tmp_path, EVERY_PART | {"service": {"port": 8443}})
    ports = {
        each["metadata"]["name"]: each["spec"]["ports"][0]["port"]
        for each in of_kind(manifests, "Service")
    }
    for each in of_kind(manifests, "APIService"):
        behind = each["spec"]["service"]
        assert behind["port"] == ports[behind["name"]] == 8443
    assert ports["one-podscale-admission"] == 443  # where the webhook is registered


def test_one_source_alone_gives_a_ca(tmp_path: Path) -> None:
    tls = {"enable": True, "ca": "ca", "key": "key", "certificate": "certificate"}
    manifests = template(tmp_path, EVERY_PART | {"certManager": {"enabled": True}, "tls": tls})
    certificates = {f"ns/{each['metadata']['name']}" for each in of_kind(manifests, "Certificate")}
    for each in of_kind(manifests, "APIService"):
        assert "caBundle" not in each["spec"]
        source = each["metadata"].get("annotations", {}).get("cert-manager.io/inject-ca-from")
        # Nobody makes one for the recommender, which writes its own CA there.
        is_own = each["spec"]["service"]["name"] == "one-podscale-recommender"
        assert source in ({None} if is_own else certificates)


@pytest.mark.parametrize("is_there", [True, False])
def test_nodes_have_alerts_where_the_part_runs(tmp_path: Path, is_there: bool) -> None:
    values = {
        "nodes": {"enabled": is_there},
        "metrics": {"prometheusRule": {"enabled": True}},
    }
    rules = of_kind(template(tmp_path, values), "PrometheusRule")
    assert ("one-podscale-nodes" in {each["metadata"]["name"] for each in rules}) is is_there


@pytest.mark.parametrize("is_there", [True, False])
def test_the_vpa_is_watched_where_it_runs(tmp_path: Path, is_there: bool) -> None:
    metrics = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    values = {"vpa": {"enabled": is_there}, "metrics": metrics}
    manifests = template(tmp_path, values)
    rules = [each["metadata"]["name"] for each in of_kind(manifests, "PrometheusRule")]
    assert ("one-podscale-vpa" in rules) is is_there
    monitors = of_kind(manifests, "PodMonitor")
    assert len(monitors) == is_there
    for each in monitors:
        selector = each["spec"]["selector"]
        [expression] = selector["matchExpressions"]
        watched = [
            pod
            for pod in (each["spec"]["template"] for each in of_kind(manifests, "Deployment"))
            if selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
            and pod["metadata"]["labels"][expression["key"]] in expression["values"]
        ]
        assert len(watched) == 3
        [endpoint] = each["spec"]["podMetricsEndpoints"]
        for pod in watched:
            ports = [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
            assert endpoint["port"] in ports


def test_decisions_are_read_by_who_may_look_at_a_namespace(tmp_path: Path) -> None:
    read = verbs_on_decisions(template(tmp_path, EVERY_PART))
    assert read == dict.fromkeys(DECISIONS, ("get", "list"))


def granted(manifests: list[Manifest], kind: str, name: str, *others: str) -> set[tuple[str, ...]]:
    """Return what roles allow: group, resource, name, verb; names as kustomize has them."""
    return {
        (group, resource, each.replace("one-podscale", "podscale"), verb)
        for role in of_kind(manifests, kind)
        if role["metadata"]["name"] in {name, *others}
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for each in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("mode", ["shadow", "replace", "own"])
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_rights_are_those_of_kustomize(tmp_path: Path, mode: str, kind: str) -> None:
    values = {"fullnameOverride": "podscale-adapter", "hpa": {"enabled": True, "mode": mode}}
    chart, kustomize = template(tmp_path, values), rendered(f"hpa-{mode}")
    adapter = granted(chart, kind, "podscale-adapter")
    assert adapter == granted(kustomize, kind, "podscale-adapter")
    chart = template(tmp_path, {"hpa": {"enabled": True, "mode": mode}})
    hpa = granted(chart, kind, "one-podscale-hpa")
    assert hpa == granted(kustomize, kind, "podscale-hpa", f"podscale-hpa:{mode}")
    assert adapter
    assert hpa


def test_nodes_come_as_with_kustomize(tmp_path: Path) -> None:
    manifests, kustomize = template(tmp_path, {"nodes": {"enabled": True}}), rendered("nodes")
    for kind in ("Role", "ClusterRole"):
        names = [f"{name}-{part}" for name in ("one-podscale", "podscale")
                 for part in ("nodes", "nodes-watchdog")]  # fmt: skip
        rights = granted(manifests, kind, *names)
        assert rights
        assert rights == granted(kustomize, kind, *names)
    for kind, count in (("DaemonSet", 2), ("ResourceQuota", 1), ("PriorityClass", 1)):
        both = [
            {each["metadata"]["name"]: [each.get(part)
                                        for part in ("spec", "value", "preemptionPolicy")]
             for each in of_kind(found, kind)}
            for found in (manifests, kustomize)
        ]  # fmt: skip
        assert len(both[0]) == count
        assert both[0] == both[1]
    # The Lease that the part holds is the one that the watchdog looks at.
    part, watchdog = (
        next(container["args"] for container in containers(manifests)
             if container["name"] == name)
        for name in ("nodes", "watchdog")
    )  # fmt: skip
    assert "--leader-elect-resource-name=one-podscale-nodes" in part
    assert watchdog[2:] == ["--lease=one-podscale-nodes", "--lease-namespace=ns"]


def test_nodes_take_mode_and_image_from_values(tmp_path: Path) -> None:
    nodes = {"enabled": True, "mode": "ballast", "pauseImage": "r.example/pause:1",
             "extraArguments": ["--cpu-threshold=0.7"]}  # fmt: skip
    manifests = template(tmp_path, {"nodes": nodes})
    assert {
        pause["image"]
        for pods in of_kind(manifests, "DaemonSet")
        for pause in pods["spec"]["template"]["spec"]["containers"]
    } == {"r.example/pause:1"}
    part = next(each["args"] for each in containers(manifests) if each["name"] == "nodes")
    assert {"--mode=ballast", "--cpu-threshold=0.7"} <= set(part)


def rights(manifests: list[Manifest]) -> dict[tuple[str, str, str], object]:
    """Return what each role allows and who is bound to it; names as kustomize has them."""
    roles = of_kind(manifests, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    text = yaml.safe_dump_all(roles).replace("one-podscale", "podscale")
    text = text.replace("namespace: ns\n", "namespace: podscale\n")
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]):
            each.get("rules") or (each["roleRef"], each["subjects"])
        for each in yaml.safe_load_all(text)
    }  # fmt: skip


@pytest.mark.parametrize(("values", "folder", "flags"), [
    ({"mode": "taint"}, "nodes-taint", {"--mode=taint", "--taints"}),
    ({"makeRoom": True}, "nodes-room", {"--make-room"}),
    ({"headroomMax": "cpu=8,memory=32Gi"}, "nodes-headroom",
     {"--headroom-max=cpu=8,memory=32Gi", "--headroom-image=pause:3.10"}),
])  # fmt: skip
def test_nodes_have_the_rights_of_what_is_switched_on(
    tmp_path: Path, values: dict[str, object], folder: str, flags: set[str]
) -> None:
    def arguments(manifests: list[Manifest]) -> set[str]:
        return {word for each in containers(manifests) for word in each["args"]}

    [file] = (path for path in (ROOT / "config/rbac" / folder).glob("*.yaml")
              if path.name != "kustomization.yaml")  # fmt: skip
    wanted = rights(list(yaml.safe_load_all(file.read_text())))
    plain = template(tmp_path, {"nodes": {"enabled": True}})
    manifests = template(tmp_path, {"nodes": {"enabled": True} | values})
    assert rights(manifests) == rights(plain) | wanted
    assert not rights(plain).keys() & wanted.keys()
    assert arguments(manifests) - arguments(plain) == flags


def test_the_page_over_nodes_has_its_readers_role(tmp_path: Path) -> None:
    name = ("ClusterRole", "", "podscale:page-reader")
    chart = rights(template(tmp_path, {"nodes": {"enabled": True}}))
    assert chart[name] == rights(rendered("nodes"))[name]


def test_the_policy_of_our_accounts_is_that_of_kustomize_under_the_releases_names(
    tmp_path: Path,
) -> None:
    def policies(manifests: list[Manifest]) -> dict[tuple[str, str], object]:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        found = yaml.safe_dump_all(of_kind(manifests, *kinds), width=10_000)
        for theirs, ours in (
            (":ns:one-podscale", ":podscale:podscale"), ("one-podscale", "podscale"),
            ("accounts-ns", "accounts-podscale"),
        ):  # fmt: skip
            found = found.replace(theirs, ours)
        return {(each["kind"], each["metadata"]["name"]): each["spec"]
                for each in yaml.safe_load_all(found)}  # fmt: skip

    nodes = {"enabled": True, "headroomMax": "cpu=8,memory=32Gi"}
    chart = template(tmp_path, {**EVERY_PART, "nodes": nodes})
    assert policies(chart) == policies(rendered("nodes-full"))
    assert len(policies(chart)) == 4
    assert len(policies(template(tmp_path, {}))) == 2
    [condition] = next(
        each["spec"]["matchConditions"]
        for each in of_kind(chart, "ValidatingAdmissionPolicy")
        if each["metadata"]["name"] == "podscale-accounts-ns"
    )
    for account in of_kind(chart, "ServiceAccount"):
        name = f"system:serviceaccount:ns:{account['metadata']['name']}"
        assert f"'{name}'" in condition["expression"]
    reader = granted(chart, "ClusterRole", "one-podscale-policy-reader")
    assert {name for _, _, name, _ in reader} == {"podscale-accounts-ns"}


def test_clusters_that_have_no_admission_policies_get_none(tmp_path: Path) -> None:
    for version, count in (("1.29.9", 0), ("1.30.0", 1)):
        done = helm(tmp_path, {}, f"--kube-version={version}")
        assert done.returncode == 0, done.stderr
        manifests = [each for each in yaml.safe_load_all(done.stdout) if each]
        assert len(of_kind(manifests, "ValidatingAdmissionPolicy")) == count
        names = {each["metadata"]["name"] for each in of_kind(manifests, "ClusterRole")}
        assert "one-podscale-policy-reader" in names
