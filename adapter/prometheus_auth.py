"""A kubeconfig as credentials for Prometheus (``--prometheus-auth-config``).

Follows prometheus-adapter: the current context's CA, client certificate, token and basic
auth are used, its server is not. Exec plugins and auth providers are refused by name.
"""

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.plainwords import plain_words
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.credentials import NoKubeconfig, read_kubeconfig


class KubeconfigError(ValueError):
    """The kubeconfig cannot serve; the message says why."""


class _Named(Struct):
    name: str
    cluster: Mapping[str, object] = {}
    user: Mapping[str, object] | None = None
    context: Mapping[str, str] = {}


class _File(Struct, rename={"current": "current-context"}):
    current: str = ""
    clusters: list[_Named] = []
    users: list[_Named] = []
    contexts: list[_Named] = []


def with_kubeconfig(options: PrometheusOptions, path: Path) -> PrometheusOptions:
    """Return ``options`` with the credentials of the kubeconfig; raises ``KubeconfigError``."""
    file = _read(path)
    context = _find(file.contexts, file.current, "context", path).context
    cluster = _find(file.clusters, context.get("cluster", ""), "cluster", path).cluster
    user = _find(file.users, context.get("user", ""), "user", path).user or {}
    for plugin in ("exec", "auth-provider"):
        if user.get(plugin):
            raise KubeconfigError(
                f"{path}: user {context.get('user')!r} uses {plugin}, which is not supported for "
                "Prometheus: give a token, a token file, a certificate or a password"
            )
    return replace(
        options,
        ca_file=_path(cluster, "certificate-authority", path),
        ca_data=_pem(cluster, "certificate-authority-data"),
        is_insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        server_name=_text(cluster, "tls-server-name"),
        client_cert_file=_path(user, "client-certificate", path),
        client_key_file=_path(user, "client-key", path),
        client_cert_data=_pem(user, "client-certificate-data"),
        client_key_data=_pem(user, "client-key-data"),
        token_file=_path(user, "tokenFile", path),
        token=_text(user, "token"),
        username=_text(user, "username"),
        password=_text(user, "password"),
    )


def _read(path: Path) -> _File:
    try:
        return msgspec.convert(read_kubeconfig(path), _File)
    except (NoKubeconfig, msgspec.ValidationError) as error:
        raise KubeconfigError(f"{path}: {plain_words(str(error))}") from None


def _find(entries: list[_Named], name: str, kind: str, path: Path) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    raise KubeconfigError(f"{path}: there is no {kind} {name!r}")


def _text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    return str(value) if value else None


def _path(fields: Mapping[str, object], key: str, file: Path) -> Path | None:
    value = _text(fields, key)
    return file.parent / value if value else None  # relative to the file, as kubectl does


def _pem(fields: Mapping[str, object], key: str) -> str | None:
    value = _text(fields, key)
    try:
        return b64decode(value).decode() if value else None
    except ValueError:
        raise KubeconfigError(f"{key} is not base64 of a text") from None
