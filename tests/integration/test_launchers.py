"""Our program started as `/adapter`, the way upstream's manifests start theirs."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import flags as adapter_flags
from adapter.rules import config_gen
from podscale.serving import flag_table, flags
from tests.integration.launched import ACCOUNT, NAMESPACE, PROGRAM, Launched
from tests.integration.upstream_arguments import INSTALLATIONS, Installation

by_name = pytest.mark.parametrize("installation", INSTALLATIONS, ids=lambda given: given.name)


@by_name
def test_upstreams_arguments_are_understood_letter_by_letter(installation: Installation) -> None:
    words = [word for word in installation.arguments if word != "/adapter"]
    parsed = flags.parse(words, adapter_flags.TABLE)
    assert [*adapter_flags.problems(parsed), *flag_table.problems(parsed)] == []
    assert parsed.arguments == ()
    assert len(parsed.given) == len(words)


@by_name
def test_an_installation_of_upstream_starts_ours(
    installation: Installation, tmp_path: Path
) -> None:
    launched = Launched(installation, tmp_path)
    launched_before: Any = None
    with launched.running() as asked:
        launched_before = launched.sandbox.written()
        if installation.serves_resources:
            status, found = launched.ask("/apis/metrics.k8s.io/v1beta1")
            assert {each["name"] for each in found["resources"]} == {"nodes", "pods"}
            status, found = launched.ask("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods")
            assert (status, found["kind"]) == (200, "PodMetricsList")
        else:
            path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/web-0/http_requests"
            status, found = launched.ask(path)
            assert status == 200, found
            assert found["items"][0]["value"] == "7"
            prefix = "/prefix" if "prefix" in str(installation.arguments) else ""
            tenant = "tenant" if "tenant" in str(installation.arguments) else None
            assert (f"{prefix}/api/v1/series", tenant) in asked
            assert {given for given in asked if given[1] != tenant} == set()
        after = launched.sandbox.written()
        launched.program.stop()
        assert launched.program.exit_code == 0, launched.program.tail()
    assert after == launched_before
    assert after[1] == []
    if installation.has_certificate:
        assert not any(launched.moved["/tmp/cert"].iterdir())


def test_a_launcher_writes_no_api_service_and_no_secret_even_when_told_to(tmp_path: Path) -> None:
    extra = (f"--service={NAMESPACE}/other", "--adopt")
    launched = Launched(INSTALLATIONS[0], tmp_path, extra)
    with launched.running():
        services, secrets = launched.sandbox.written()
        assert launched.ask("/apis/custom.metrics.k8s.io/v1beta1")[0] == 200
    assert secrets == []
    for spec in services.values():
        assert spec["service"]["name"] == ACCOUNT
        assert "caBundle" not in spec
    kept = sorted(path.name for path in launched.moved["/tmp/cert"].iterdir())
    assert kept == ["apiserver.crt", "apiserver.key"]


def test_an_unknown_flag_ends_it_with_status_2_and_its_name(tmp_path: Path) -> None:
    program = tmp_path / "adapter"
    program.symlink_to(PROGRAM)
    done = subprocess.run(
        [program, "/adapter", "--prometheus-uri=x"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--prometheus-uri" in done.stderr
    assert "Traceback" not in done.stderr


def test_config_gen_prints_the_default_rules_under_its_own_name(tmp_path: Path) -> None:
    program = tmp_path / "config-gen"
    program.symlink_to(PROGRAM)
    done = subprocess.run(
        [program, "--rate-interval=3m", "--label-prefix=kube_"],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert len(yaml.safe_load(done.stdout)["rules"]) == 6
    assert done.stdout == config_gen.default_yaml("3m", "kube_")
