"""What to apply so that KEDA goes on behind us, and the way back, of its APIService."""

import base64
import json

import pytest
import trustme
import yaml
from click.testing import CliRunner
from msgspec import convert

from adapter.backends.backends_file import BackendConfig, LabelledService, of_service, read_backends
from podscale.cli.commands.migrate import command
from podscale.core.settings import ADOPTED_FROM
from podscale.migrate.keda.side_by_side import API_SERVICE
from podscale.migrate.outcome import MigrationOutcome
from podscale.migrate.reader import beside_keda

CA = trustme.CA().cert_pem.bytes()
KEDA = {
    "service": {"namespace": "scaling", "name": "keda-operator-metrics-apiserver", "port": 443},
    "caBundle": base64.b64encode(CA).decode(),
}
PODSCALE = {
    "service": {"namespace": "podscale", "name": "podscale-adapter"},
    "caBundle": "b3Vycw==",
}


def api_service(spec: object, **annotations: str) -> str:
    metadata = {"name": API_SERVICE, "annotations": annotations}
    return yaml.safe_dump({"kind": "APIService", "metadata": metadata, "spec": spec})


def outcome(text: str) -> MigrationOutcome:
    return beside_keda([(text, "stdin")])


@pytest.mark.parametrize(
    "text",
    [
        api_service(KEDA),
        api_service(PODSCALE, **{ADOPTED_FROM: json.dumps({"spec": KEDA})}),
    ],
    ids=["as KEDA has it", "as an adoption left it"],
)
def test_kedas_adapter_becomes_a_backend_that_we_can_read(text) -> None:
    found = outcome(text)
    service = next(each for each in found.manifests if each["kind"] == "Service")
    assert of_service(convert(service, LabelledService)) == BackendConfig(
        "keda", "https://keda-operator-metrics-apiserver.scaling.svc:443", None,
        ("podscale", "podscale-external-reader"), metrics=("s0-*",),
        selector_label="scaledobject.keda.sh/name", ca_bundle=CA.decode(),
    )  # fmt: skip
    patched = next(step for step in found.steps if "configmap" in step)
    data = json.loads(patched.split("'")[1])["data"]["backends.yaml"]
    assert read_backends(data, "backends.yaml").with_services
    assert "-n scaling" in found.steps[0], "its operator leaves the APIService alone first"
    assert all("kubectl" in each for each in found.back)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (api_service({**KEDA, "caBundle": ""}), "no spec.service with a caBundle"),
        (api_service({**KEDA, "caBundle": "no base64"}), "no spec.service with a caBundle"),
        (api_service(PODSCALE, **{ADOPTED_FROM: "{"}), "no spec.service with a caBundle"),
        (api_service(None), "no spec.service with a caBundle"),
        ("kind: ScaledObject\nmetadata: {name: web}\n", "only the APIService"),
    ],
)
def test_what_does_not_tell_whom_to_trust_is_refused(text, words) -> None:
    found = outcome(text)
    assert found.manifests == []
    assert any(words in each.text for each in (*found.refused, *found.lost))


def test_the_command_prints_it_and_tells_how_it_is_called(tmp_path) -> None:
    file = tmp_path / "apiservice.yaml"
    file.write_text(api_service(KEDA))
    told = CliRunner().invoke(command, ["keda", "--side-by-side", str(file)])
    assert told.exit_code == 0, told.output
    assert "the way back" in told.output
    only = CliRunner().invoke(command, ["keda", "--side-by-side", str(file), "--only", "manifests"])
    kinds = [each["kind"] for each in yaml.safe_load_all(only.stdout)]
    assert kinds == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
                     "Service"]  # fmt: skip
    for words in (["keda", "--side-by-side"], ["--side-by-side", str(file)]):
        told = CliRunner().invoke(command, words)
        assert told.exit_code == 2
        assert "podscale migrate keda --side-by-side -" in told.output
