"""A kubeconfig as credentials for Prometheus (``--prometheus-auth-config``).

Follows prometheus-adapter: the current context's CA, client certificate, token and basic
auth are used, its server is not. Exec plugins and auth providers are refused by name.
"""

from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.showable import shown_problem
from podscale.feed.options import PrometheusOptions


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
    # Whatever stands in the file may be a secret: a parser's words are shown without it.
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _File)
    except (OSError, msgspec.ValidationError) as error:
        why = str(error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        why = f"{where}not YAML: {shown_problem(error.problem or '')}"
    except RecursionError:
        why = "nested too deeply"
    except UnicodeDecodeError:
        why = "not a text file in UTF-8"
    except Exception:  # noqa: BLE001 - PyYAML stumbles over values that do not fit their tags
        why = "not YAML: it holds characters or values that YAML does not allow"
    raise KubeconfigError(f"{path}: {why}")


def _find(entries: list[_Named], name: str, kind: str, path: Path) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    raise KubeconfigError(f"{path}: there is no {kind} {name!r}")


def _text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    return str(value) if value else None


def _path(fields: Mapping[str, object], key: str, kubeconfig: Path) -> Path | None:
    value = _text(fields, key)
    return kubeconfig.parent / value if value else None  # relative to the file, as kubectl does


def _pem(fields: Mapping[str, object], key: str) -> str | None:
    value = _text(fields, key)
    try:
        return b64decode(value).decode() if value else None
    except ValueError:
        raise KubeconfigError(f"{key} is not base64 of a text") from None
