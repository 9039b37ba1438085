"""The VPA's command lines: what upstream's three programs share, and what is ours.

Each part adds its own table. The API server that tells decisions is off until it has a
port: upstream's manifests do not name one.
"""

from collections.abc import Sequence

from podscale.kube.client.connect import ApiServerTarget
from podscale.kube.leadership.leading import LeaseChoice
from podscale.process import flags as process_flags
from podscale.process.clusters import Targets
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, Flags

COMMON: tuple[Flag, ...] = (
    *API_SERVER,
    Flag("secure-port", "int", 0, "HTTPS port of vpa.podscale.io; 0: not served."),
    Flag("kubeconfig", help="Kubeconfig of the cluster; in-cluster when empty."),
    Flag("kube-api-qps", "float", 50.0, "Limit of requests per second; 0: none."),
    Flag("kube-api-burst", "float", 100.0, "Requests that may go out at once."),
    Flag("vpa-object-namespace", help="Only VPAs and pods of this namespace; empty: all."),
    Flag("ignored-vpa-object-namespaces", "strings", (), "Namespaces whose VPAs are ignored."),
    Flag("feature-gates", "strings", (),
         "InPlace, CPUStartupBoost, PerVPAConfig, or AllAlpha for these three, as NAME=true; "
         "others change nothing."),
)  # fmt: skip

_ALPHA = ("InPlace", "CPUStartupBoost", "PerVPAConfig")  # there is none in beta
_SWITCHES = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def problems(flags: Flags) -> list[str]:
    found = []
    if flags.text("vpa-object-namespace") and flags.listing("ignored-vpa-object-namespaces"):
        found.append(
            "--vpa-object-namespace and --ignored-vpa-object-namespaces exclude each other"
        )
    for text in filter(None, flags.listing("feature-gates")):
        name, separator, value = text.partition("=")
        if not separator or value.strip().lower() not in _SWITCHES:
            found.append(f"--feature-gates: {text!r} is not NAME=true or NAME=false")
        elif not name.strip():
            found.append("--feature-gates: a gate needs its name")
    if "leader-elect" in flags.values:
        found += process_flags.lease_problems(flags)
    return found


def gate(flags: Flags, name: str) -> bool:
    """Return whether a feature gate is on; off where nothing is said, as upstream's alpha.

    One that is named goes before AllAlpha, in whatever order (k8s.io/component-base).
    """
    switched: dict[str, bool] = {}
    for text in flags.listing("feature-gates"):
        gate_name, _, value = text.partition("=")
        switched[gate_name.strip()] = _SWITCHES.get(value.strip().lower(), False)
    return name in _ALPHA and switched.get(name, switched.get("AllAlpha", False))


def target(flags: Flags) -> ApiServerTarget:
    """Return which API server to talk to."""
    return ApiServerTarget(
        kubeconfig=flags.text("kubeconfig"),
        qps=flags.seconds("kube-api-qps"),
        burst=int(flags.seconds("kube-api-burst")),
    )


def targets(flags: Flags) -> Targets:
    """Return how to reach the cluster: one for objects and reviews."""
    return Targets.one(target(flags))


def namespaces(flags: Flags) -> Sequence[str]:
    """Return the only namespaces to look at; none named is all."""
    only = flags.text("vpa-object-namespace")
    return (only,) if only else ()


def lease_of(flags: Flags) -> LeaseChoice | None:
    """Return the Lease to lead by; None without leader election."""
    return process_flags.lease_of(flags) if flags.switch("leader-elect") else None
