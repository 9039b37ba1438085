"""The command line of the nodes part, and what it comes to."""

from typing import Literal, get_args

from msgspec import Struct, structs

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.core.selectors.selector import EVERYTHING, Selector, SelectorError, parse
from podscale.kube.client.connect import ApiServerTarget
from podscale.kube.leadership.leading import LeaseChoice
from podscale.nodes.decide.ballast import BallastSettings
from podscale.nodes.headroom.keeper import HeadroomChoice
from podscale.nodes.headroom.shapes import HeadroomLimit
from podscale.nodes.room.plan import RoomChoice
from podscale.process.clusters import Targets
from podscale.process.flags import leader_election, lease_of, lease_problems
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, Flags, wrong_values

Mode = Literal["shadow", "ballast", "extender", "taint"]
LEASE = "podscale-nodes"

OWN: tuple[Flag, ...] = (
    Flag("kubeconfig", help="Kubeconfig of the cluster; in-cluster when empty."),
    Flag("mode", default="shadow",
         help="shadow: decide and write nothing; ballast: resize the ballast pods; extender: "
              "answer schedulers; taint: taint nodes that are full.", choices=get_args(Mode)),
    Flag("node-selector", help="Only nodes with these labels; others have no ballast."),
    Flag("cpu-threshold", "float", 0.8, "Share of a node's CPU that pods may use; the label "
         "nodes.podscale.io/cpu-threshold sets it per node.", must_be="above 0 and at most 1"),
    Flag("memory-threshold", "float", 0.85, "The same of memory, and "
         "nodes.podscale.io/memory-threshold.", must_be="above 0 and at most 1"),
    Flag("ballast-namespace", default="podscale-ballast", help="Where the ballast pods are."),
    Flag("nodes-interval", "duration", 15.0, "Between two rounds over all nodes.",
         must_be="greater than 0"),
    Flag("make-room", "bool", False, "Evict so that resizes fit which their node has no room "
         "for, where the VPAs of all concerned are annotated vpa.podscale.io/make-room."),
    Flag("min-replicas", "int", 2, "For room: least live pods of a controller to evict one."),
    Flag("eviction-tolerance", "float", 0.5,
         "For room: share of a controller's pods that may be down.", must_be="between 0 and 1"),
    Flag("admission-controller-status-lease-namespace",
         help="For room: where the VPA admission controller's Lease is; empty: our own."),
    Flag("headroom-max", help="The most that pause pods may request which hold room for pods that "
         "HPAs are about to ask for: cpu=8,memory=32Gi; and pods=, how many they may be (50 where "
         "it is not there), of which one namespace has a third. Empty: no headroom."),
    Flag("headroom-image", default="pause", help="Of these pods: any whose only process waits."),
    Flag("metrics-source", default="feed",
         help="feed: Prometheus, read by this process (--config, --prometheus-url); api: the "
              "cluster's metrics API, whoever serves it.", choices=("feed", "api")),
    Flag("metrics-timeout", "duration", 10.0, "How long one batch of metrics is waited for.",
         must_be="greater than 0"),
    *leader_election(LEASE, where="Its namespace; empty: the pod's own."),
)  # fmt: skip

TABLE: tuple[Flag, ...] = (*API_SERVER, *OWN)


class NodesChoice(Struct, frozen=True):
    """How nodes are looked at, and whether anything is written."""

    mode: Mode = "shadow"
    ballast: BallastSettings = BallastSettings()
    interval_s: float = 15.0  # between two rounds over all nodes
    timeout_s: float = 10.0  # of one batch of metrics
    namespace: str = "podscale-ballast"
    selector: Selector = EVERYTHING  # of nodes
    room: RoomChoice | None = None  # None: none is made for resizes
    headroom: HeadroomChoice | None = None  # None: none is kept
    lease: LeaseChoice | None = None


def problems(flags: Flags) -> list[str]:
    """Return what makes these flags invalid, all at once."""
    found = wrong_values(flags, OWN)
    if flags.text("mode") == "ballast" and not flags.switch("leader-elect"):
        found.append("--mode=ballast needs --leader-elect: without a Lease that somebody renews "
                     "the watchdog lets all ballast go")  # fmt: skip
    if flags.text("headroom-max") and _limit(flags.text("headroom-max")) is None:
        found.append("--headroom-max must be amounts of both, as in cpu=8,memory=32Gi, and may "
                     "have pods=50")  # fmt: skip
    if not flags.text("ballast-namespace"):
        found.append("--ballast-namespace must not be empty")
    try:
        parse(flags.text("node-selector"))
    except SelectorError as error:
        found.append(f"--node-selector: {error}")
    return found + lease_problems(flags)


def choice(
    flags: Flags,
    *,
    own_namespace: str,
    ballast: BallastSettings = BallastSettings(),  # noqa: B008
) -> NodesChoice:
    """Return the choices of flags that ``problems`` found nothing wrong with; ``ballast`` is what
    no flag says."""
    mode: Mode = next(each for each in get_args(Mode) if each == flags.text("mode"))
    lease = lease_of(flags, own_namespace)
    limit = _limit(flags.text("headroom-max"))
    admission = flags.text("admission-controller-status-lease-namespace") or own_namespace
    namespace = flags.text("ballast-namespace")
    room = RoomChoice(
        flags.number("min-replicas"),
        flags.seconds("eviction-tolerance"),
        (admission, "vpa-admission-controller"),
        namespace,
    )
    return NodesChoice(
        mode=mode,
        ballast=structs.replace(
            ballast,
            cpu_threshold=flags.seconds("cpu-threshold"),
            memory_threshold=flags.seconds("memory-threshold"),
        ),
        interval_s=flags.seconds("nodes-interval"),
        timeout_s=flags.seconds("metrics-timeout"),
        namespace=namespace,
        selector=parse(flags.text("node-selector")),
        room=room if flags.switch("make-room") else None,
        headroom=None if limit is None else HeadroomChoice(limit, flags.text("headroom-image")),
        lease=lease if flags.switch("leader-elect") else None,
    )


def _limit(text: str) -> HeadroomLimit | None:
    # None where it is not both amounts, or what is beside them is not a number of pods.
    parts = [part.partition("=") for part in text.split(",")]
    try:
        found = {name.strip(): quantity.parse(amount.strip()) for name, _, amount in parts}
    except QuantityError:
        return None
    pods = found.pop("pods", quantity.parse("50"))
    if found.keys() != {"cpu", "memory"} or min(each.nano for each in (pods, *found.values())) < 0:
        return None
    return HeadroomLimit(found["cpu"].milli, found["memory"].value, pods.value)


def targets(flags: Flags) -> Targets:
    return Targets.one(ApiServerTarget(kubeconfig=flags.text("kubeconfig")))
