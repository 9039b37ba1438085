"""The API server's flags and ours, as data, and what makes them invalid.

Upstream: k8s.io/apiserver 0.30 ``SecureServingOptionsWithLoopback``, the delegating
authentication and authorization options, ``AuditOptions``, ``FeatureOptions``, and
klog. Flags without a meaning here are accepted and say so.
"""

from collections.abc import Sequence

from podscale.serving.certificates import ciphers
from podscale.serving.flags import Flag, Flags, wrong_values

_AUDIT = "podscale writes no audit log; the API server's own records these requests"
_GO = "it concerns Go's runtime or HTTP stack"
_KLOG = "logs go to standard error"

API_SERVER: tuple[Flag, ...] = (
    Flag("secure-port", "int", 443, "Port of HTTPS; 0: do not serve."),
    Flag("bind-address", "string", "0.0.0.0", "Address to listen on."),  # noqa: S104 - upstream's
    Flag("cert-dir", "string", "apiserver.local.config/certificates",
         "Where a self-signed certificate is kept when no other is configured."),
    Flag("tls-cert-file", "string", "", "Serving certificate (PEM), re-read when it changes."),
    Flag("tls-private-key-file", "string", "", "Key of --tls-cert-file."),
    Flag("tls-cipher-suites", "strings", (),
         "TLS 1.2 suites by IANA name; those that OpenSSL lacks are left out."),
    Flag("tls-min-version", "string", "",
         "VersionTLS12 (default; lower ones mean it) or VersionTLS13."),
    Flag("tls-sni-cert-key", "array", (),
         "cert,key or cert,key:name,*.name — a certificate for server names; repeatable."),
    Flag("permit-address-sharing", "bool", False, "Listen with SO_REUSEADDR."),
    Flag("permit-port-sharing", "bool", False, "Listen with SO_REUSEPORT."),
    Flag("http2-max-streams-per-connection", "int", 0, ignored="HTTP/1.1 is spoken"),
    Flag("disable-http2", "bool", False, ignored="HTTP/1.1 is spoken anyway"),
    Flag("authentication-kubeconfig", "string", "",
         "Cluster that answers TokenReviews; in-cluster when empty."),
    Flag("authentication-skip-lookup", "bool", False,
         "Do not read extension-apiserver-authentication from kube-system."),
    Flag("authentication-tolerate-lookup-failure", "bool", False,
         "Start although that ConfigMap cannot be read."),
    Flag("authentication-token-webhook-cache-ttl", "duration", 10.0,
         "How long a TokenReview is remembered."),
    Flag("client-ca-file", "string", "", "CA of client certificates: CN: user, O: groups."),
    Flag("requestheader-client-ca-file", "string", "", "CA of the front proxy's certificate."),
    Flag("requestheader-allowed-names", "strings", (),
         "Common names of front proxies; none: any name that the CA signed."),
    Flag("requestheader-username-headers", "strings", ("x-remote-user",),
         "Headers that carry the user's name."),
    Flag("requestheader-uid-headers", "strings", (), "Headers that carry the user's UID."),
    Flag("requestheader-group-headers", "strings", ("x-remote-group",),
         "Headers that carry the groups."),
    Flag("requestheader-extra-headers-prefix", "strings", ("x-remote-extra-",),
         "Prefixes of headers with extra facts about the user."),
    Flag("authorization-kubeconfig", "string", "",
         "Cluster that answers SubjectAccessReviews; in-cluster when empty."),
    Flag("authorization-webhook-cache-authorized-ttl", "duration", 10.0,
         "How long a permission is remembered."),
    Flag("authorization-webhook-cache-unauthorized-ttl", "duration", 10.0,
         "How long a denial is remembered; at most 10s."),
    Flag("authorization-always-allow-paths", "strings", ("/healthz", "/readyz", "/livez"),
         "Paths open to everybody; a trailing * makes a prefix."),
    Flag("authorization-cluster-first", "bool", True,
         "Ask first whether a user may use a whole API group; sound for RBAC."),
    Flag("audit-log-format", default="json", ignored=_AUDIT),
    Flag("audit-*", "any", ignored=_AUDIT),
    Flag("profiling", "bool", True, ignored=_GO),
    Flag("contention-profiling", "bool", False, ignored=_GO),
    Flag("debug-socket-path", ignored=_GO),
    Flag("enable-priority-and-fairness", "bool", False,
         ignored="requests are limited by --max-requests-inflight"),
    Flag("max-requests-inflight", "int", 400, "Reading requests in flight; beyond: 429.",
         must_be="greater than 0"),
    Flag("max-mutating-requests-inflight", "int", 200, "Writing requests in flight; beyond: 429.",
         must_be="greater than 0"),
    Flag("request-timeout", "duration", 60.0, "When the server gives up on a request (504).",
         must_be="greater than 0"),
    Flag("shutdown-delay-duration", "duration", 5.0,
         "How long readiness fails before the listener closes on SIGTERM."),
    Flag("v", "int", 0, "Verbosity: 4 and above logs at debug level.", shorthand="v"),
    Flag("log-format", "string", "console", "console or json.", choices=("console", "json")),
    Flag("vmodule", ignored="verbosity is one for all modules"),
    Flag("log-flush-frequency", "duration", 5.0, ignored="logs are not buffered"),
    *(Flag(name, "any", ignored=_KLOG) for name in (
        "logtostderr", "alsologtostderr", "stderrthreshold", "log-dir", "log-file",
        "log-file-max-size", "log-backtrace-at", "add-dir-header", "one-output", "skip-headers",
        "skip-log-headers",
    )),
)  # fmt: skip

_AUDIT_FORMATS = ("legacy", "json")
_HEADER_FLAGS = (
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
)


def problems(flags: Flags) -> Sequence[str]:
    """Return what makes these flags invalid, all at once; empty when they are valid."""
    found = wrong_values(flags, API_SERVER)
    port = flags.number("secure-port")
    if not 0 <= port <= 65535:
        found.append(
            f"--secure-port {port} must be between 0 and 65535, inclusive. "
            "0 for turning off secure port"
        )
    for name in _HEADER_FLAGS:
        found += [
            f"--{name} contains an empty header name; remove it"
            for header in flags.listing(name)
            if not header.strip(' "')
        ]
    if flags.text("audit-log-format") not in _AUDIT_FORMATS:
        found.append(
            f"invalid audit log format {flags.text('audit-log-format')}, "
            f"allowed formats are {','.join(_AUDIT_FORMATS)}"
        )
    offered = ciphers.offer(flags.text("tls-min-version"), flags.listing("tls-cipher-suites"))
    if isinstance(offered, str):
        found.append(f"--tls-min-version, --tls-cipher-suites: {offered}")
    if bool(flags.text("tls-cert-file")) != bool(flags.text("tls-private-key-file")):
        found.append("--tls-cert-file and --tls-private-key-file go together; give both or none")
    return found
