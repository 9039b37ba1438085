"""The backends file: every problem of it with its line."""

from pathlib import Path

import pytest

from adapter.backends.backends_file import BackendConfig, read_backends
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
    assert read_backends(GOOD, "b.yaml") == [
        BackendConfig(
            "keda", "https://keda.keda.svc", Path("/etc/keda/ca.crt"), ("podscale", "reader"),
            metrics=("s0-*",), selector_label="scaledobject.keda.sh/name", timeout_s=2.0,
        )
    ]  # fmt: skip


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
