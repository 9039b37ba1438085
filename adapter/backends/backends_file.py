"""The backends file (``--external-backends``): adapters that are asked for what we do not have.

backends:
- name: keda
  url: https://keda-operator-metrics-apiserver.keda.svc
  caFile: /etc/keda/ca.crt
  serviceAccount: podscale/podscale-external-reader
  metrics: ["s0-*"]
  selectorLabel: scaledobject.keda.sh/name
"""

from pathlib import Path
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from adapter.errors import ConfigInvalid, Problem
from adapter.rules.strict_yaml import YamlReader

_KEYS = (
    "name", "url", "caFile", "serverName", "serviceAccount", "metrics", "selectorLabel", "timeout",
)  # fmt: skip
_TIMEOUT_S = 5.0


class BackendConfig(Struct, frozen=True):
    """One of them."""

    name: str
    url: str
    ca_file: Path
    service_account: tuple[str, str]  # namespace and name: who we are there
    server_name: str = ""  # to verify instead of the URL's host
    metrics: tuple[str, ...] = ()  # patterns of a shell, besides what it lists
    selector_label: str = ""  # of its own requests: they go there before our rules are asked
    timeout_s: float = _TIMEOUT_S


def read_backends(text: str, file: str) -> list[BackendConfig]:
    """Return the backends that ``text`` names; raises ``ConfigInvalid`` with every problem."""
    reader = YamlReader()
    root = reader.document(text)
    fields = reader.fields([] if root is None else [root], "", ("backends",))
    found: dict[str, BackendConfig] = {}
    for node, path in reader.items(fields, "backends"):
        each = _backend(reader, node, path)
        if each.name in found:
            what = f"{each.name!r} is the name of a backend before it"
            reader.refuse(reader.fields([node], path, _KEYS), "name", what)
        found.setdefault(each.name, each)
    if reader.problems:
        raise ConfigInvalid(reader.problems, file)
    return list(found.values())


def load(path: Path) -> list[BackendConfig]:
    """Return a file's backends; raises ``ConfigInvalid`` or ``OSError``. Blocking."""
    return read_backends(path.read_text(encoding="utf-8", errors="surrogateescape"), str(path))


def _backend(reader: YamlReader, node: yaml.Node, path: str) -> BackendConfig:
    fields = reader.fields([node], path, _KEYS)

    def required(key: str, is_good: bool, what: str) -> None:
        if not is_good:
            reader.refuse(fields, key, what)

    name, url = reader.text(fields, "name"), reader.text(fields, "url")
    required("name", bool(name), "a backend needs a name")
    required("url", _is_https(url), "an https URL of an adapter is expected")
    ca_file = reader.text(fields, "caFile")
    required("caFile", bool(ca_file), "the CA of the backend's certificate is required")
    namespace, slash, account = reader.text(fields, "serviceAccount").partition("/")
    is_account = bool(namespace and slash and account) and "/" not in account
    what = "NAMESPACE/NAME of a ServiceAccount that may only read external.metrics.k8s.io"
    required("serviceAccount", is_account, what)
    patterns = []
    for item, at in reader.items(fields, "metrics"):
        if isinstance(item, yaml.ScalarNode) and item.value:
            patterns.append(str(item.value))
        else:
            mark = item.start_mark
            reader.problems.append(
                Problem(at, "a name or pattern is expected", mark.line + 1, mark.column + 1)
            )
    return BackendConfig(
        name,
        url.rstrip("/"),
        Path(ca_file),
        (namespace, account),
        reader.text(fields, "serverName"),
        tuple(patterns),
        reader.text(fields, "selectorLabel"),
        reader.seconds(fields, "timeout", _TIMEOUT_S),
    )


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False
