"""The updater's command line: upstream's flags."""

from msgspec import Struct

from podscale.process.flags import leader_election
from podscale.serving.flags import Flag, Flags, wrong_values
from vpa.flags import COMMON, gate
from vpa.flags import problems as common_problems
from vpa.updater.decide.disruption_budget import EvictionRate, rate_limit
from vpa.updater.decide.priority import UpdaterSettings

UPSTREAM: tuple[Flag, ...] = (
    Flag("updater-interval", "duration", 60.0, "How often pods are looked at.",
         must_be="greater than 0"),
    Flag("min-replicas", "int", 2, "Least live pods of a controller to disturb one."),
    Flag("eviction-tolerance", "float", 0.5, "Share of a controller's pods that may be down.",
         must_be="between 0 and 1"),
    Flag("eviction-rate-limit", "float", -1.0, "Pods per second; 0 or less: no limit."),
    Flag("eviction-rate-burst", "int", 1, "Pods at once under --eviction-rate-limit."),
    Flag("in-place-skip-disruption-budget", "bool", False,
         "Resize without restart past the budget."),
    Flag("pod-update-threshold", "float", 0.1, "Difference at which an old pod is due."),
    Flag("in-recommendation-bounds-eviction-lifetime-threshold", "duration", 43200.0,
         "Age at which a pod within its bounds may be due."),
    Flag("evict-after-oom-threshold", "duration", 600.0,
         "A container killed for memory sooner makes its pod due."),
    Flag("use-admission-controller-status", "bool", True, "Update nothing unless admission lives."),
    Flag("admission-controller-status-lease-name", default="vpa-admission-controller",
         help="The admission controller's Lease."),
    Flag("admission-controller-status-lease-namespace", help="Its namespace; empty: our own."),
    Flag("admission-controller-status-lease-timeout", "duration", 60.0, "Older is dead."),
    Flag("address", default=":8943", help="Address of /metrics and /health-check; empty: none."),
    Flag("concurrent-cpu-startup-boost-syncs", "int", 1,
         ignored="boosts are taken back within the loop"),
    *leader_election("vpa-updater", is_on=False, namespace="kube-system"),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*COMMON, *UPSTREAM)


class Options(Struct, frozen=True):
    interval_s: float = 60.0
    settings: UpdaterSettings = UpdaterSettings()
    rate: EvictionRate = EvictionRate(None, 0)
    lease: str = "vpa-admission-controller"  # "": not looked at
    lease_namespace: str = "kube-system"
    lease_timeout_s: float = 60.0


def problems(flags: Flags) -> list[str]:
    """Return what makes these flags invalid, all at once."""
    return [*common_problems(flags), *wrong_values(flags, UPSTREAM)]


def options(flags: Flags, own_namespace: str) -> Options:
    """Return the choices of flags that ``problems`` found nothing wrong with."""
    watches_lease = flags.switch("use-admission-controller-status")
    return Options(
        interval_s=flags.seconds("updater-interval"),
        settings=UpdaterSettings(
            update_threshold=flags.seconds("pod-update-threshold"),
            lifetime_s=flags.seconds("in-recommendation-bounds-eviction-lifetime-threshold"),
            evict_after_oom_s=flags.seconds("evict-after-oom-threshold"),
            min_replicas=flags.number("min-replicas"),
            eviction_tolerance=flags.seconds("eviction-tolerance"),
            skip_disruption_budget=flags.switch("in-place-skip-disruption-budget"),
            in_place=gate(flags, "InPlace"),
            per_vpa_config=gate(flags, "PerVPAConfig"),
            cpu_startup_boost=gate(flags, "CPUStartupBoost"),
        ),
        rate=rate_limit(flags.seconds("eviction-rate-limit"), flags.number("eviction-rate-burst")),
        lease=flags.text("admission-controller-status-lease-name") if watches_lease else "",
        lease_namespace=(
            flags.text("admission-controller-status-lease-namespace") or own_namespace
        ),
        lease_timeout_s=flags.seconds("admission-controller-status-lease-timeout"),
    )
