"""The overlay of `podscale run`: one Deployment, one account with the sum of the parts' rights."""

from pathlib import Path

import pytest

from podscale.cli.combined import merged, split
from podscale.cli.together_flags import TABLES, problems
from podscale.serving import flags
from tests.unit.deploy.rendered import Manifest, containers, of_kind, rendered

PARTS = ("base", "external", "resource", "hpa-replace", "vpa")


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return rendered("all-in-one")


def named(found: list[Manifest], kind: str, name: str) -> Manifest:
    return next(each for each in of_kind(found, kind) if each["metadata"]["name"] == name)


def test_it_starts_podscale_run_with_arguments_and_rules_that_all_its_parts_accept(
    manifests: list[Manifest], tmp_path: Path
) -> None:
    [container] = containers(manifests)
    command, *words = container["args"]
    assert command == "run"
    rules = tmp_path / "config.yaml"
    rules.write_text(named(manifests, "ConfigMap", "podscale-rules")["data"]["config.yaml"])
    assert "--config=/etc/podscale/config.yaml" in words
    # `run` puts the flags of the page beside these.
    table = (*merged(TABLES), flags.Flag("page", "bool", False, ""))
    parsed = flags.parse([*words, f"--config={rules}"], table)
    assert parsed.warnings == ()
    given = split(parsed, TABLES)
    assert problems(given) == []
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert given["adapter"].number("secure-port") == ports["https"]
    assert given["admission"].number("port") == ports["webhook"]
    assert given["hpa"].text("mode") == "replace"


def test_every_part_keeps_a_certificate_for_the_service_that_stands_before_it(
    manifests: list[Manifest],
) -> None:
    [container] = containers(manifests)
    given = {
        word.partition("=")[2]
        for word in container["args"]
        if word.partition("=")[0].endswith("service")
    }
    services = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["spec"]["selector"]
        for each in of_kind(manifests, "Service")
    }
    assert given == set(services)
    labels = of_kind(manifests, "Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    for selector in services.values():
        leading = {key for key in selector if key.startswith("leader.podscale.io/")}
        assert {key: selector[key] for key in selector.keys() - leading} == labels


def test_one_account_is_bound_to_every_role_of_the_parts(manifests: list[Manifest]) -> None:
    def bindings(found: list[Manifest]) -> set[tuple[str, str, str]]:
        return {
            (
                each["metadata"].get("namespace", ""),
                each["metadata"]["name"],
                each["roleRef"]["name"],
            )
            for each in of_kind(found, "RoleBinding", "ClusterRoleBinding")
        }

    parts = {binding for name in PARTS for binding in bindings(rendered(name))}
    own = ("podscale", "podscale-certificates", "podscale-certificates")
    assert bindings(manifests) == parts | {own}
    [account] = of_kind(manifests, "ServiceAccount")
    assert account["metadata"]["name"] == "podscale"
    subjects = {
        (subject["namespace"], subject["name"])
        for each in of_kind(manifests, "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
    }
    assert subjects == {("podscale", "podscale"), ("kube-system", "horizontal-pod-autoscaler")}


def test_the_roles_are_those_of_the_parts_to_the_letter(manifests: list[Manifest]) -> None:
    for name in PARTS:
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
    assert paths == [None, ["/podscale/rules"], ["/page", "/page/*"]]
    assert doctor["rules"][0]["resources"] == ["podscale-rules"]
    assert not doctor["metadata"].get("labels")
    assert not page["metadata"].get("labels")


def test_no_budget_holds_up_the_drain_of_its_node(manifests: list[Manifest]) -> None:
    assert of_kind(manifests, "PodDisruptionBudget") == []
    [deployment] = of_kind(manifests, "Deployment")
    assert deployment["spec"]["replicas"] == 1
