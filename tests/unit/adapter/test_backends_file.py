"""The backends file: every problem of it with its line."""

from pathlib import Path

import pytest
import trustme
import yaml
from msgspec import convert

from adapter.backends.backends_file import (
    LABEL,
    BackendConfig,
    LabelledService,
    NamedBackends,
    of_service,
    read_backends,
)
from adapter.errors import ConfigInvalid

GOOD = """
backends:
- name: keda
  url: https://keda.keda.svc/
  caFile: /etc/keda/ca.crt
  serviceAccount: podscale/reader
  metrics: ["s0-*"]
  selectorLabel: scaledobject.keda.sh/name
  timeout: 2s
"""


def test_everything_that_is_written_is_meant() -> None:
    keda = BackendConfig(
        "keda", "https://keda.keda.svc", Path("/etc/keda/ca.crt"), ("podscale", "reader"),
        metrics=("s0-*",), selector_label="scaledobject.keda.sh/name", timeout_s=2.0,
    )  # fmt: skip
    assert read_backends(GOOD, "b.yaml") == NamedBackends((keda,))
    assert read_backends(f"{GOOD}services: true\n", "b.yaml") == NamedBackends((keda,), True)


def service(entry: str | None, **spec: object) -> LabelledService:
    annotations = None if entry is None else {LABEL: entry}
    metadata = {"name": "keda", "namespace": "podscale", "annotations": annotations}
    return convert({"metadata": metadata, "spec": spec}, LabelledService)


def test_a_service_is_a_backend_by_its_annotation() -> None:
    ca = trustme.CA().cert_pem.bytes().decode()
    entry = yaml.safe_dump(
        {"caBundle": ca, "serviceAccount": "podscale/reader", "metrics": ["s0-*"]}
    )
    assert of_service(service(entry)) == BackendConfig(
        "keda",
        "https://keda.podscale.svc:443",
        None,
        ("podscale", "reader"),
        "",
        ("s0-*",),
        ca_bundle=ca,
    )
    elsewhere = service(entry, externalName="localhost", ports=[{"port": 6443}])
    assert of_service(elsewhere).url == "https://localhost:6443"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, "the annotation podscale.io/external-backend is missing"),
        ("caBundle: [", "2:1: not YAML"),
        (
            "serviceAccount: a/b",
            "1:1: caBundle: the CA of the backend's certificate is required, as PEM",
        ),
        ("caBundel: x", "did you mean 'caBundle'?"),
        ("caBundle: x\nurl: https://elsewhere", "unknown key 'url'"),
    ],
)
def test_a_service_that_is_none_is_named_with_what_is_wrong(entry, words) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        of_service(service(entry))
    assert words in str(refused.value)
    assert "Service podscale/keda" in str(refused.value)


@pytest.mark.parametrize(
    ("was", "wrong", "line", "words"),
    [
        ("name: keda", "name: ''", 3, "a backend needs a name"),
        ("https://keda.keda.svc/", "http://keda.keda.svc", 4, "an https URL"),
        ("https://keda.keda.svc/", "https://u:p@keda", 4, "an https URL"),
        ("  caFile: /etc/keda/ca.crt\n", "", 3, "the CA of the backend's certificate is required"),
        ("podscale/reader", "reader", 6, "NAMESPACE/NAME"),
        ('["s0-*"]', "[{}]", 7, "a name or pattern is expected"),
        ("timeout: 2s", "timeout: -2s", 9, "more than 0"),
        ("timeout: 2s", "timeout: 2s\nservice: true", 10, "did you mean 'services'"),
        ("https://keda.keda.svc/", "https://keda:99999", 4, "an https URL"),
        ("timeout: 2s", "timeouts: 2s", 9, "did you mean 'timeout'"),
        (
            "  timeout: 2s",
            "- {name: keda, url: https://x, caFile: y, serviceAccount: a/b}",
            9,
            "is the name of a backend before it",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(was, wrong, line, words) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read_backends(GOOD.replace(was, wrong, 1), "b.yaml")
    first = refused.value.problems[0]
    assert words in first.message
    assert first.line == line
    assert "u:p" not in str(refused.value)
