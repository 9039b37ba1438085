"""The adapter's command line: prometheus-adapter's own flags and ours.

The API server's flags are ``podscale.serving.flag_table``; together they accept whatever
upstream's manifests, charts and values files pass.
"""

import os
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from adapter.discovery.relist import RelistOptions
from podscale.core.plainwords import plain_words
from podscale.core.showable import is_http_url, shown_url
from podscale.feed.http.session import proxy_of
from podscale.feed.options import VERBS, FeedOptions, PrometheusOptions, Verb
from podscale.kube.client.connect import ApiServerTarget
from podscale.kube.client.connect import is_in_pod as in_pod
from podscale.kube.client.credentials import SERVICE_ACCOUNT, NoKubeconfig, read_kubeconfig
from podscale.process.clusters import Targets
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, FlagError, Flags, wrong_values

_SHARED = "stores and one connection replace the client that it limited"

OWN: tuple[Flag, ...] = (
    Flag("config", help="Rules file; re-read when it changes."),
    Flag("prometheus-url", default="https://localhost",
         help="Prometheus, or anything that speaks its API; may carry a path prefix.",
         instead="name further Prometheus servers in a sources file (--sources)"),
    Flag("prometheus-auth-incluster", "bool", False,
         "Send this pod's ServiceAccount token to Prometheus."),
    Flag("prometheus-auth-config", help="Kubeconfig with the credentials for Prometheus."),
    Flag("prometheus-ca-file", help="CA of Prometheus's certificate, re-read when it changes."),
    Flag("prometheus-client-tls-cert-file", help="Client certificate for Prometheus."),
    Flag("prometheus-client-tls-key-file", help="Key of the client certificate."),
    Flag("prometheus-token-file", help="Bearer token for Prometheus, re-read when it changes."),
    Flag("prometheus-header", "array", (), "name=value of a header for Prometheus; repeatable."),
    Flag("prometheus-verb", default="GET",
         help="GET or POST; not given: GET for short queries, POST for long ones."),
    Flag("metrics-relist-interval", "duration", 600.0,
         "How long after a relist of the metrics the next one starts.", must_be="greater than 0"),
    Flag("metrics-max-age", "duration", 0.0,
         "How far back a relist looks for series; 0: the relist interval."),
    Flag("lister-kubeconfig",
         help="Kubeconfig for the cluster's objects; in-cluster when empty. Outside a pod it is "
         "enough by itself."),
    Flag("client-qps", "float", 5.0, ignored=_SHARED),
    Flag("client-burst", "int", 10, ignored=_SHARED),
    Flag("discovery-interval", "duration", 0.0,
         "How often the cluster's resources are looked up; 0: every minute."),
)  # fmt: skip

FEED: tuple[Flag, ...] = (
    Flag("coalescing", default="on",
         help="on: one query for many requests where equality is proved; off: one per request."),
    Flag("sources", help="Sources file: more Prometheus servers, by name; re-read when changed."),
    Flag("external-backends",
         help="Backends file: adapters that are asked for external metrics that no rule has; "
         "re-read when it changes."),
    Flag("feed-max-age", "duration", 5.0,
         "How long a snapshot of Prometheus answers; 0 merges only simultaneous requests."),
    Flag("sample-timestamps", default="on",
         help="on: ask when samples were scraped, so that stale ones are not served."),
    Flag("max-sample-age", "duration", 300.0, "Samples older than this are stale."),
    Flag("prometheus-timeout", "duration", 10.0, "Deadline of one query.",
         must_be="greater than 0"),
    Flag("series-timeout", "duration", 60.0, "Deadline of one series query of a relist.",
         must_be="greater than 0"),
    Flag("metrics-grace-period", "duration", 0.0,
         "How long a metric stays listed after its series have gone."),
    Flag("service",
         help="NAMESPACE/NAME of the Service in front: keeps a CA in a Secret and in APIServices."),
    Flag("adopt", "bool", False,
         "Take over APIServices that point to another server, of APIs that there are rules for."),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*OWN, *FEED, *API_SERVER)


def problems(flags: Flags) -> list[str]:
    """Return what makes the adapter's own flags invalid, all at once."""
    found = wrong_values(flags, (*OWN, *FEED))
    if not flags.text("config"):
        found.append("no metrics discovery configuration file specified: give --config")
    found += [
        f"--{name} must be on or off"
        for name in ("coalescing", "sample-timestamps")
        if flags.text(name) not in _SWITCH
    ]
    for make in (prometheus_options, feed_options):
        try:
            make(flags)
        except FlagError as error:
            found.append(str(error))
    return found


def prometheus_url(text: str) -> str:
    """Return the URL as it is; raises ``FlagError`` for what nobody can connect to."""
    if not is_http_url(text):
        raise FlagError(
            f"--prometheus-url {shown_url(text)}: not an http or https URL; write one like "
            "http://localhost:9090"
        )
    return text


def prometheus_options(flags: Flags) -> PrometheusOptions:
    """Return how to reach Prometheus; raises ``FlagError``, for the environment's proxy too."""
    options = PrometheusOptions(
        url=prometheus_url(flags.text("prometheus-url")),
        verb=_verb(flags),
        headers=headers(flags.listing("prometheus-header")),
        deadline_s=flags.seconds("prometheus-timeout"),
        series_deadline_s=flags.seconds("series-timeout"),
    )
    ca_file = flags.text("prometheus-ca-file")
    if ca_file:
        # As upstream a CA file settles the connection, and a kubeconfig is not looked at.
        options = structs.replace(options, ca_file=Path(ca_file), **_client_certificate(flags))
    else:
        options = _with_identity(options, flags)
    token_file = flags.text("prometheus-token-file")
    if token_file:
        options = structs.replace(options, token_file=Path(token_file))
    try:
        proxy_of(options, os.environ)
    except ValueError as error:
        raise FlagError(str(error)) from None
    return options


def _with_identity(options: PrometheusOptions, flags: Flags) -> PrometheusOptions:
    kubeconfig = flags.text("prometheus-auth-config")
    if flags.switch("prometheus-auth-incluster"):
        if kubeconfig:
            raise FlagError(
                "--prometheus-auth-incluster and --prometheus-auth-config exclude each other"
            )
        return structs.replace(
            options, token_file=SERVICE_ACCOUNT / "token", ca_file=SERVICE_ACCOUNT / "ca.crt"
        )
    if not kubeconfig:
        return options
    try:
        return with_kubeconfig(options, Path(kubeconfig))
    except KubeconfigError as error:
        raise FlagError(f"--prometheus-auth-config: {error}") from None


def _client_certificate(flags: Flags) -> dict[str, Path]:
    certificate = flags.text("prometheus-client-tls-cert-file")
    key = flags.text("prometheus-client-tls-key-file")
    if not certificate or not key:
        return {}
    return {"client_cert_file": Path(certificate), "client_key_file": Path(key)}


def _verb(flags: Flags) -> Verb | None:
    if "prometheus-verb" not in flags.given:
        return None
    verb = flags.text("prometheus-verb")
    if verb in VERBS:
        return VERBS[verb]
    raise FlagError(f"unsupported Prometheus HTTP verb {verb!r}; supported verbs: GET and POST")


def headers(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return names and values of ``name=value`` texts, cut at the first ``=``.

    Without one the value is empty; values of one name are joined, which means the same
    as sending the header repeatedly.
    """
    found: dict[str, list[str]] = {}
    for text in given:
        name, _, value = text.partition("=")
        found.setdefault(name.strip().title(), []).append(value)
    return tuple((name, ", ".join(values)) for name, values in found.items())


def feed_options(flags: Flags) -> FeedOptions:
    """Return how requests become queries."""
    return FeedOptions(
        is_coalescing=_SWITCH.get(flags.text("coalescing"), True),
        max_age_s=flags.seconds("feed-max-age"),
        with_sample_timestamps=_SWITCH.get(flags.text("sample-timestamps"), True),
        max_sample_age_s=flags.seconds("max-sample-age"),
    )


def relist_options(flags: Flags, *, has_rules: bool) -> RelistOptions:
    """Return when to relist; raises ``FlagError``."""
    interval_s, max_age_s = (
        flags.seconds("metrics-relist-interval"),
        flags.seconds("metrics-max-age"),
    )
    if has_rules and max_age_s and max_age_s < interval_s:
        raise FlagError("--metrics-max-age must not be less than --metrics-relist-interval")
    return RelistOptions(
        interval_s=interval_s, max_age_s=max_age_s, grace_s=flags.seconds("metrics-grace-period")
    )


def targets(flags: Flags, *, is_in_pod: bool | None = None) -> Targets:
    """Return how to reach each cluster. Blocking: looks for a ServiceAccount, unless told.

    Without its flag each is the one that this pod runs in, as upstream. Outside a pod,
    where upstream ends, it is what the other flags name: one kubeconfig is enough there.
    """
    names = ("lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    given = [flags.text(name) for name in names]
    inside = in_pod() if is_in_pod is None else is_in_pod
    otherwise = "" if inside else next(filter(None, given), "")
    return Targets(*(ApiServerTarget(kubeconfig=path or otherwise) for path in given))


_SWITCH = {"on": True, "off": False, "true": True, "false": False}


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
