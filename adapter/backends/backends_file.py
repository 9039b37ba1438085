"""The backends file (``--external-backends``): adapters that are asked for what we do not have.

backends:
- name: keda
  url: https://keda-operator-metrics-apiserver.keda.svc
  caFile: /etc/keda/ca.crt
  serviceAccount: podscale/podscale-external-reader
  metrics: ["s0-*"]
  selectorLabel: scaledobject.keda.sh/name
services: true  # and those that Services of our namespace name, after these

A Service with the label ``podscale.io/external-backend`` has an entry in an annotation of the
same name, without name and url, and with the CA itself (``caBundle``).
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from adapter.errors import ConfigInvalid, Problem
from adapter.rules.strict_yaml import Fields, YamlReader
from podscale.core.showable import is_http_url

LABEL = "podscale.io/external-backend"  # of Services, and of the annotation with their entry

_OF_BOTH = ("serverName", "serviceAccount", "metrics", "selectorLabel", "timeout")
_KEYS = ("name", "url", "caFile", *_OF_BOTH)
_OF_SERVICES = ("caBundle", *_OF_BOTH)
_TIMEOUT_S = 5.0
_HTTPS = 443


class BackendConfig(Struct, frozen=True):
    name: str
    url: str
    ca_file: Path | None  # None: ``ca_bundle`` is the CA
    service_account: tuple[str, str]  # namespace and name: who we are there
    server_name: str = ""  # to verify instead of the URL's host
    metrics: tuple[str, ...] = ()  # patterns of a shell, besides what it lists
    selector_label: str = ""  # of its own requests: they go there before our rules are asked
    timeout_s: float = _TIMEOUT_S
    ca_bundle: str = ""  # PEM


class NamedBackends(Struct, frozen=True):
    backends: tuple[BackendConfig, ...] = ()
    with_services: bool = False


class _Port(Struct, frozen=True):
    port: int = _HTTPS


class _ServiceSpec(Struct, frozen=True, rename="camel"):
    external_name: str = ""
    ports: list[_Port] | None = None


class _ServiceMeta(Struct, frozen=True):
    name: str
    namespace: str = ""
    annotations: Mapping[str, str] | None = None


class LabelledService(Struct, frozen=True):
    metadata: _ServiceMeta
    spec: _ServiceSpec = _ServiceSpec()

    def __str__(self) -> str:
        return f"Service {self.metadata.namespace}/{self.metadata.name}"


def read_backends(text: str, file: str) -> NamedBackends:
    """Return the backends that ``text`` names; raises ``ConfigInvalid`` with every problem."""
    reader = YamlReader()
    root = reader.document(text)
    fields = reader.fields([] if root is None else [root], "", ("backends", "services"))
    found: dict[str, BackendConfig] = {}
    for node, path in reader.items(fields, "backends"):
        entry = reader.fields([node], path, _KEYS)
        each = _of_file(reader, entry)
        if each.name in found:
            reader.refuse(entry, "name", f"{each.name!r} is the name of a backend before it")
        found.setdefault(each.name, each)
    with_services = reader.flag(fields, "services", default=False)
    if reader.problems:
        raise ConfigInvalid(reader.problems, file)
    return NamedBackends(tuple(found.values()), with_services)


def of_service(service: LabelledService) -> BackendConfig:
    """Return the backend that a Service is; raises ``ConfigInvalid``."""
    name, namespace = service.metadata.name, service.metadata.namespace
    reader = YamlReader()
    root = reader.document((service.metadata.annotations or {}).get(LABEL, ""))
    if root is None:
        what = f"the annotation {LABEL} is missing: it holds caBundle, serviceAccount, metrics …"
        raise ConfigInvalid(reader.problems or [Problem("", what)], str(service))
    fields = reader.fields([root], "", _OF_SERVICES)
    host = service.spec.external_name or f"{name}.{namespace}.svc"
    port = service.spec.ports[0].port if service.spec.ports else _HTTPS
    found = _backend(reader, fields, name, f"https://{host}:{port}", None, _ca(reader, fields))
    if reader.problems:
        raise ConfigInvalid(reader.problems, str(service))
    return found


def _of_file(reader: YamlReader, fields: Fields) -> BackendConfig:
    name, url = reader.text(fields, "name"), reader.text(fields, "url")
    if not name:
        reader.refuse(fields, "name", "a backend needs a name")
    if not is_http_url(url, ("https",)) or "@" in urlsplit(url).netloc:
        reader.refuse(fields, "url", "an https URL of an adapter is expected")
    ca_file = reader.text(fields, "caFile")
    if not ca_file:
        reader.refuse(fields, "caFile", "the CA of the backend's certificate is required")
    return _backend(reader, fields, name, url.rstrip("/"), Path(ca_file), "")


def _ca(reader: YamlReader, fields: Fields) -> str:
    text = reader.text(fields, "caBundle")
    try:
        ssl.create_default_context(cadata=text or "none")
    except (ssl.SSLError, ValueError):
        what = "the CA of the backend's certificate is required, as PEM"
        reader.refuse(fields, "caBundle", what)
    return text


def _backend(
    reader: YamlReader, fields: Fields, name: str, url: str, ca_file: Path | None, ca: str
) -> BackendConfig:
    namespace, slash, account = reader.text(fields, "serviceAccount").partition("/")
    if not (namespace and slash and account) or "/" in account:
        what = "NAMESPACE/NAME of a ServiceAccount that may only read external.metrics.k8s.io"
        reader.refuse(fields, "serviceAccount", what)
    return BackendConfig(
        name,
        url,
        ca_file,
        (namespace, account),
        reader.text(fields, "serverName"),
        reader.patterns(fields, "metrics", "a name or pattern is expected"),
        reader.text(fields, "selectorLabel"),
        reader.seconds(fields, "timeout", _TIMEOUT_S),
        ca,
    )
