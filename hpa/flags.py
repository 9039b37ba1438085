"""The HPA's command line: kube-controller-manager's flags for its HPA controller, and ours.

The flags of the API server that serves explanations are ``podscale.serving.flag_table``;
a provider of metrics adds its own.
"""

from msgspec import Struct

from hpa.decide.settings import RELEASES, Gates, Settings
from hpa.loop.state import Options
from podscale.core.selectors.selector import SelectorError, parse
from podscale.kube.client.connect import ApiServerTarget
from podscale.kube.client.resource import HPAS, PODAUTOSCALERS
from podscale.kube.leadership.leading import LeaseChoice
from podscale.process.flags import leader_election, lease_of, lease_problems
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, Flags, wrong_values

UPSTREAM: tuple[Flag, ...] = (
    Flag("kubeconfig", help="Kubeconfig of the cluster; in-cluster when empty."),
    Flag("master", help="URL of the API server, instead of the kubeconfig's."),
    Flag("horizontal-pod-autoscaler-sync-period", "duration", 15.0,
         "How often each autoscaler is decided on; podscale.io/sync-period sets it per object.",
         must_be="greater than 0"),
    Flag("horizontal-pod-autoscaler-downscale-stabilization", "duration", 300.0,
         "How long a higher recommendation holds the size up, where behavior says nothing."),
    Flag("horizontal-pod-autoscaler-tolerance", "float", 0.1,
         "How far a metric may be off its target before anything happens."),
    Flag("horizontal-pod-autoscaler-cpu-initialization-period", "duration", 300.0,
         "How long after a pod's start its CPU samples may be skipped."),
    Flag("horizontal-pod-autoscaler-initial-readiness-delay", "duration", 30.0,
         "Readiness changes this soon after a pod's start are its first readiness."),
    Flag("concurrent-horizontal-pod-autoscaler-syncs", "int", 5,
         "Writes in flight, where that is more than 50; deciding takes no workers."),
    Flag("kube-api-qps", "float", 0.0, "Limit of requests per second; 0: none."),
    Flag("kube-api-burst", "int", 0, "Requests that may go out at once under --kube-api-qps."),
    *leader_election(
        "podscale-hpa", where="Namespace of the Lease and of the histories; empty: the pod's own.",
    ),
)  # fmt: skip

OWN: tuple[Flag, ...] = (
    Flag("mode", default="replace",
         help="replace: instead of the in-tree controller; shadow: decide and explain, write "
              "nothing; own: act on PodAutoscalers of autoscaling.podscale.io.",
         choices=("replace", "shadow", "own")),
    Flag("namespaces", "strings", (), "Only these namespaces; none named is all."),
    Flag("selector", help="Only autoscalers with these labels."),
    Flag("emulated-version", default="1.37",
         help="Kubernetes release whose decisions are followed: 1.36, 1.37 or 1.38.",
         choices=tuple(RELEASES)),
    Flag("coordinate", "bool", False,
         "Hold a utilization of CPU to the anchor of a VPA on the same target; per object: "
         "podscale.io/coordinate: on or off. Not in shadow mode."),
    Flag("hold-after-outage", "bool", True,
         "After an outage of Prometheus a size is not lowered by a metric until no range of its "
         "query reaches into the outage, where a rate reads low; false: as upstream. Not in "
         "shadow mode."),
    Flag("metrics-source", default="feed",
         help="feed: Prometheus, read by this process (--config, --prometheus-url), and the "
              "cluster's metrics APIs for what no rule covers; api: those alone.",
         choices=("feed", "api")),
    Flag("metrics-timeout", "duration", 30.0, "How long one batch of metrics is waited for.",
         must_be="greater than 0"),
    Flag("min-sync-period", "duration", 1.0,
         "The shortest period that podscale.io/sync-period sets; a shorter one counts as this."),
    Flag("metric-max-age", "duration", 0.0,
         "Older samples fail their metric; 0: the source's own limit is the only one."),
    Flag("status-deadband", "float", 0.1,
         "currentMetrics alone is written when a value moved by this share of its target, or "
         "once in 5 minutes; 0 writes every change, as upstream."),
    Flag("service",
         help="NAMESPACE/NAME of the Service in front: keeps a CA in a Secret and in the "
              "APIService of the explanations."),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*API_SERVER, *UPSTREAM, *OWN)

_FEWEST_WRITES = 50


class HpaChoice(Struct, frozen=True):
    settings: Settings
    options: Options
    is_feed: bool  # metrics come from Prometheus, read by this process
    namespaces: tuple[str, ...]
    selector: str
    lease: LeaseChoice
    is_leader_elected: bool = True


def problems(flags: Flags) -> list[str]:
    """Return what makes these flags invalid, all at once."""
    found = wrong_values(flags, (*UPSTREAM, *OWN))
    found += [
        f"--{flag.name} must not be negative"
        for flag in (*UPSTREAM, *OWN)
        if flag.kind in ("duration", "float") and flags.seconds(flag.name) < 0
    ]
    try:
        parse(flags.text("selector"))
    except SelectorError as error:
        found.append(f"--selector: {error}")
    return found + lease_problems(flags)


def choice(flags: Flags, *, own_namespace: str) -> HpaChoice:
    """Return the choices of flags that ``problems`` found nothing wrong with."""
    return HpaChoice(
        settings=settings_of(flags),
        options=Options(
            resource=PODAUTOSCALERS if flags.text("mode") == "own" else HPAS,
            writes=max(flags.number("concurrent-horizontal-pod-autoscaler-syncs"), _FEWEST_WRITES),
            answer_timeout_s=flags.seconds("metrics-timeout"),
            status_deadband=flags.seconds("status-deadband"),
        ),
        is_feed=flags.text("metrics-source") == "feed",
        namespaces=flags.listing("namespaces"),
        selector=flags.text("selector"),
        lease=lease_of(flags, own_namespace),
        is_leader_elected=flags.switch("leader-elect"),
    )


def settings_of(flags: Flags) -> Settings:
    """Return what decisions are made by; gates follow the emulated release, features on."""
    release = RELEASES[flags.text("emulated-version")]
    return Settings(
        release=release,
        mode="shadow" if flags.text("mode") == "shadow" else "replace",  # own decides alike
        gates=Gates.of(release),
        tolerance=flags.seconds("horizontal-pod-autoscaler-tolerance"),
        downscale_stabilization_s=flags.seconds(
            "horizontal-pod-autoscaler-downscale-stabilization"
        ),
        cpu_initialization_s=flags.seconds("horizontal-pod-autoscaler-cpu-initialization-period"),
        initial_readiness_delay_s=flags.seconds(
            "horizontal-pod-autoscaler-initial-readiness-delay"
        ),
        sync_period_s=flags.seconds("horizontal-pod-autoscaler-sync-period"),
        min_sync_period_s=flags.seconds("min-sync-period"),
        coordinates=flags.switch("coordinate"),
        holds_after_outage=flags.switch("hold-after-outage"),
        metric_max_age_s=flags.seconds("metric-max-age") or None,
    )


def target(flags: Flags) -> ApiServerTarget:
    return ApiServerTarget(
        kubeconfig=flags.text("kubeconfig"),
        server=flags.text("master"),
        qps=flags.seconds("kube-api-qps"),
        burst=flags.number("kube-api-burst"),
    )
