"""The overlays of `run`, and of `serve` with `control`: an account has its parts' rights in sum."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from podscale.cli.page import FLAGS
from podscale.cli.parts import KINDS, problems
from podscale.process.flags import merged, split
from podscale.serving import flags
from tests.integration.deploy.rendered import ROOT, Manifest, containers, of_kind, rendered

pytestmark = pytest.mark.needs("kubectl")

PARTS = {
    "run": ("adapter", "hpa", "recommender", "updater", "admission"),
    "serve": ("adapter", "admission"),
    "control": ("hpa", "recommender", "updater"),
}
# Overlay -> account -> the parts whose rights it has.
ACCOUNTS = {
    "all-in-one": {"podscale": PARTS["run"]},
    "serve-control": {"podscale-serve": PARTS["serve"], "podscale-control": PARTS["control"]},
}
SOURCES = ("base", "external", "resource", "hpa-replace", "vpa")  # the overlays of single parts


@pytest.fixture(scope="module", params=ACCOUNTS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def manifests(overlay: str) -> list[Manifest]:
    return rendered(overlay)


def named(found: list[Manifest], kind: str, name: str) -> Manifest:
    return next(each for each in of_kind(found, kind) if each["metadata"]["name"] == name)


def bindings(found: list[Manifest]) -> Mapping[tuple[str, str, str], set[str]]:
    """Return (namespace, binding, role) -> the accounts bound."""
    return {
        (
            each["metadata"].get("namespace", ""),
            each["metadata"]["name"],
            each["roleRef"]["name"],
        ): {f"{subject.get('namespace', '')}/{subject['name']}" for subject in each["subjects"]}
        for each in of_kind(found, "RoleBinding", "ClusterRoleBinding")
    }


def test_each_starts_with_arguments_and_rules_that_all_its_parts_accept(
    manifests: list[Manifest], tmp_path: Path
) -> None:
    rules = tmp_path / "config.yaml"
    rules.write_text(named(manifests, "ConfigMap", "podscale-rules")["data"]["config.yaml"])
    for container in containers(manifests):
        command, *words = container["args"]
        assert "--config=/etc/podscale/config.yaml" in words
        tables = {part: KINDS[part].table for part in PARTS[command]}
        table = (*merged(tables), *(FLAGS if command != "serve" else ()))
        parsed = flags.parse([*words, f"--config={rules}"], table)
        assert parsed.warnings == ()
        given = split(parsed, tables)
        assert problems(given) == []
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert next(iter(given.values())).number("secure-port") == ports.pop("https")
        if "admission" in given:
            assert "port" in given["admission"].given
            assert given["admission"].number("port") == ports.pop("webhook")
        assert not ports
        if "hpa" in given:
            assert given["hpa"].text("mode") == "replace"


def test_all_parts_run_in_exactly_one_deployment(manifests: list[Manifest], overlay: str) -> None:
    started = [part for each in containers(manifests) for part in PARTS[each["args"][0]]]
    assert sorted(started) == sorted(PARTS["run"])
    accounts = {
        each["spec"]["template"]["spec"]["serviceAccountName"]: PARTS[
            each["spec"]["template"]["spec"]["containers"][0]["args"][0]
        ]
        for each in of_kind(manifests, "Deployment")
    }
    assert accounts == ACCOUNTS[overlay]


def test_every_part_keeps_a_certificate_for_the_service_that_stands_before_it(
    manifests: list[Manifest],
) -> None:
    before = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["spec"]["selector"]
        for each in of_kind(manifests, "Service")
        if each["spec"].get("clusterIP") != "None"  # for scraping, under another's certificate
    }
    for each in of_kind(manifests, "Deployment"):
        template = each["spec"]["template"]
        given = {
            word.partition("=")[2]
            for word in template["spec"]["containers"][0]["args"]
            if word.partition("=")[0].endswith("service")
        }
        assert given
        for name in given:
            selector = before.pop(name)
            leading = {key for key in selector if key.startswith("leader.podscale.io/")}
            rest = {key: selector[key] for key in selector.keys() - leading}
            assert rest == template["metadata"]["labels"]
    assert not before


def test_every_service_leads_to_a_port_of_the_pods_it_selects(manifests: list[Manifest]) -> None:
    pods = [each["spec"]["template"] for each in of_kind(manifests, "Deployment")]
    for service in of_kind(manifests, "Service"):
        selector = {
            key: value
            for key, value in service["spec"]["selector"].items()
            if not key.startswith("leader.podscale.io/")
        }
        [pod] = [each for each in pods if each["metadata"]["labels"] == selector]
        ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        is_webhook = service["metadata"]["name"] == "podscale-admission"
        [port] = service["spec"]["ports"]
        assert port["targetPort"] == ("webhook" if is_webhook else "https")
        assert port["targetPort"] in ports


def test_every_replica_is_scraped(manifests: list[Manifest]) -> None:
    folder = ROOT / "config/monitoring"
    monitors = of_kind(
        [
            each
            for path in (folder / "servicemonitor.yaml", folder / "hpa/servicemonitor.yaml")
            for each in yaml.safe_load_all(path.read_text())
        ],
        "ServiceMonitor",
    )
    found = [
        service
        for monitor in monitors
        for service in of_kind(manifests, "Service")
        if monitor["spec"]["selector"]["matchLabels"].items()
        <= service["metadata"]["labels"].items()
    ]
    # Not those that select the leader alone.
    assert not [key for each in found for key in each["spec"]["selector"] if "leader" in key]
    scraped = {each["spec"]["selector"]["app.kubernetes.io/component"] for each in found}
    assert scraped == {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for each in of_kind(manifests, "Deployment")
    }


def test_each_account_is_bound_to_every_role_of_its_parts_and_to_no_other(
    manifests: list[Manifest], overlay: str
) -> None:
    expected: dict[tuple[str, str, str], set[str]] = {}
    for name in SOURCES:
        for binding, subjects in bindings(rendered(name)).items():
            expected[binding] = {
                next(
                    f"podscale/{account}"
                    for account, parts in ACCOUNTS[overlay].items()
                    if subject.removeprefix("podscale/podscale-") in parts
                )
                if subject.startswith("podscale/")
                else subject
                for subject in subjects
            }
    for account in ACCOUNTS[overlay]:
        # Whoever serves an API keeps its certificate under a Lease of its own.
        own = f"{account}-certificates"
        expected["podscale", own, own] = {f"podscale/{account}"}
    assert bindings(manifests) == expected
    accounts = {each["metadata"]["name"] for each in of_kind(manifests, "ServiceAccount")}
    assert accounts == ACCOUNTS[overlay].keys()


def test_the_roles_are_those_of_the_parts_to_the_letter(manifests: list[Manifest]) -> None:
    for name in SOURCES:
        for role in of_kind(rendered(name), "Role", "ClusterRole"):
            same = [
                each["rules"]
                for each in of_kind(manifests, role["kind"])
                if each["metadata"] == role["metadata"]
            ]
            assert same == [role["rules"]]


def test_rules_and_page_are_for_whom_the_administrator_says(manifests: list[Manifest]) -> None:
    doctor, page = (
        named(manifests, "ClusterRole", f"podscale:{name}") for name in ("doctor", "page-reader")
    )
    paths = [rule.get("nonResourceURLs") for rule in (*doctor["rules"], *page["rules"])]
    assert paths == [None, ["/podscale/rules"], None, ["/page", "/page/*"]]
    assert doctor["rules"][0]["resources"] == ["podscale-rules"]
    assert not doctor["metadata"].get("labels")
    assert not page["metadata"].get("labels")


def test_what_may_be_away_at_a_time_is_said_of_each_that_is_there_twice(
    manifests: list[Manifest], overlay: str
) -> None:
    # A budget for an only pod would hold up every drain of its node.
    wanted = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in of_kind(manifests, "Deployment")
        if each["spec"]["replicas"] > 1
    }
    assert len(wanted) == (2 if overlay == "serve-control" else 0)
    budgets = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in of_kind(manifests, "PodDisruptionBudget")
    }
    assert budgets == wanted
