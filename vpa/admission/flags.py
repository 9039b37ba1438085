"""The admission controller's command line: upstream's flags."""

from pathlib import Path

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.serving.certificates.keeper import service_of
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, FlagError, Flags, wrong_values
from podscale.serving.flags import parse as parse_flags
from vpa.admission.patches.patch import BoostSettings
from vpa.admission.registration import Registration
from vpa.admission.validation import VpaGates
from vpa.flags import COMMON, gate
from vpa.flags import problems as common_problems
from vpa.model.amounts import is_in_range

UPSTREAM: tuple[Flag, ...] = (
    Flag("port", "int", 8000, "Port of the webhook.", must_be="between 0 and 65535"),
    Flag("address", default=":8944", help="Address of /metrics and /health-check; empty: none."),
    Flag("register-webhook", "bool", True, "Create and keep the webhook's configuration."),
    Flag("register-by-url", "bool", False, "Register --webhook-address instead of a Service."),
    Flag("webhook-address",
         help="Address to register with --register-by-url; https:// may be left out."),
    Flag("webhook-port", help="Port to register with --register-by-url."),
    Flag("webhook-service", default="vpa-webhook", help="Service to register."),
    Flag("webhook-timeout-seconds", "int", 5, "How long the API server waits.",
         must_be="between 1 and 30"),
    Flag("webhook-labels", "strings", (), "Labels of the configuration, NAME:VALUE."),
    Flag("webhook-failure-policy-fail", "bool", False, "Refuse pods while the webhook is away."),
    Flag("client-ca-file", default="/etc/tls-certs/caCert.pem", help="CA to register."),
    Flag("tls-cert-file", default="/etc/tls-certs/serverCert.pem", help="Serving certificate."),
    Flag("tls-private-key", default="/etc/tls-certs/serverKey.pem", help="Its key."),
    Flag("reload-cert", "bool", False, "Accepted; files are followed anyway."),
    Flag("min-tls-version", default="tls1_2", choices=("tls1_2", "tls1_3"),
         help="tls1_2 or tls1_3."),
    Flag("tls-ciphers", help="TLS 1.2 suites by OpenSSL's or IANA's names, separated by colons."),
    Flag("status-lease-name", default="vpa-admission-controller", help="The sign of life."),
    Flag("status-lease-namespace", help="Its namespace; empty: our own, else kube-system."),
    Flag("status-lease-update-interval", "duration", 10.0, "How often it is renewed."),
    Flag("max-allowed-cpu-boost", help="Most CPU of a boosted container."),
)  # fmt: skip

OWN: tuple[Flag, ...] = (
    Flag("service",
         help="NAMESPACE/NAME of the Service in front: registers it, and keeps a CA in a Secret "
              "and in the webhook's caBundle. Files of a certificate are then not needed."),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*COMMON, *UPSTREAM, *OWN)


def problems(flags: Flags) -> list[str]:
    """Return what makes these flags invalid, all at once."""
    found = [*common_problems(flags), *wrong_values(flags, UPSTREAM)]
    if flags.switch("register-by-url") and not flags.text("webhook-address"):
        found.append("--register-by-url needs --webhook-address")
    if flags.text("webhook-port") and not flags.text("webhook-port").isdecimal():
        found.append("--webhook-port is not a number")
    found += [f"--webhook-labels: {text!r} is not NAME:VALUE"
              for text in flags.listing("webhook-labels") if ":" not in text]  # fmt: skip
    try:
        service_of(flags.text("service"))
    except FlagError as error:
        found.append(str(error))
    try:
        cap = boost(flags).max_cpu
    except QuantityError as error:
        found.append(f"--max-allowed-cpu-boost: {error}")
    else:
        if not is_in_range("cpu", cap):
            found.append(f"--max-allowed-cpu-boost: {cap} is no amount that a container can have")
    return found


def boost(flags: Flags) -> BoostSettings:
    """Return the startup boost's gate and cap; raises ``QuantityError``."""
    text = flags.text("max-allowed-cpu-boost")
    cap = quantity.parse(text) if text else quantity.Quantity(0)
    return BoostSettings(gate(flags, "CPUStartupBoost"), cap)


def gates(flags: Flags) -> VpaGates:
    return VpaGates(
        gate(flags, "InPlace"), gate(flags, "CPUStartupBoost"), gate(flags, "PerVPAConfig")
    )


def registration(flags: Flags, namespace: str) -> Registration:
    """Return how the webhook is registered."""
    url, service = "", flags.text("webhook-service")
    behind = service_of(flags.text("service"))
    if behind is not None:
        namespace, service = behind.namespace, behind.name
    if flags.switch("register-by-url"):
        url = _url(flags.text("webhook-address"), flags.text("webhook-port"))
    labels = (text.partition(":") for text in flags.listing("webhook-labels"))
    return Registration(
        url=url,
        service=service,
        namespace=namespace,
        timeout_s=flags.number("webhook-timeout-seconds"),
        fails=flags.switch("webhook-failure-policy-fail"),
        labels=tuple((name, value) for name, _, value in labels),
        only=flags.text("vpa-object-namespace"),
        ignored=flags.listing("ignored-vpa-object-namespaces"),
    )


def _url(address: str, port: str) -> str:
    # Upstream registers the address as it is written, so one that works there has its scheme.
    url = address if "://" in address else f"https://{address}"
    return f"{url}:{port}" if port else url


def serving(flags: Flags) -> Flags:
    """Return the flags of the HTTPS server behind upstream's names. Blocking: looks for files.

    Without the certificate's files a self-signed one is made and registered, by URL only: it
    does not name a Service, whose pods would pass unsized while we seem to live.
    """
    words = ["--authentication-skip-lookup=true", f"--secure-port={flags.number('port')}"]
    words.append(f"--cert-dir={flags.text('cert-dir')}")
    version = "VersionTLS13" if flags.text("min-tls-version") == "tls1_3" else "VersionTLS12"
    words.append(f"--tls-min-version={version}")
    if flags.text("tls-ciphers"):
        words.append(f"--tls-cipher-suites={flags.text('tls-ciphers').replace(':', ',')}")
    certificate, key = flags.text("tls-cert-file"), flags.text("tls-private-key")
    if Path(certificate).is_file() and Path(key).is_file():
        words += [f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]
    elif (
        flags.switch("register-webhook")
        and not flags.switch("register-by-url")
        and not flags.text("service")
    ):
        raise FlagError(
            f"--tls-cert-file and --tls-private-key: no {certificate} and {key}; name the files, "
            "or --service=NAMESPACE/NAME (of run and serve: --admission.service) to have "
            "certificates made and kept, or --register-webhook=false"
        )
    words += ["--shutdown-delay-duration=0s", f"--bind-address={flags.text('bind-address')}"]
    return parse_flags(words, API_SERVER)


def authority(flags: Flags) -> bytes:
    """Return the CA file; empty when there is none. Blocking."""
    file = Path(flags.text("client-ca-file"))
    return file.read_bytes() if file.is_file() else b""
