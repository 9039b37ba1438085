"""How much each node's ballast pod requests, so that the scheduler's own fit check refuses
by measured load.

With ballast R a pod of request r > 0 is admitted exactly where U + r ≤ θ·C and Σ + r ≤ A, to
within one unit (1m, 1 Mi). All nodes are decided on together, over arrays. Pure: no I/O, no
clock. CPU is in thousandths of a core, memory in bytes.
"""

import enum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CPU, MEMORY = 0, 1
BEST_SCORE = 10  # of an extender
# What the pod keeps: without any request it would be of another QoS class, and a resize must
# not change that.
LEAST: Floats = np.array([[1.0], [2.0**20]])
_UNIT: Floats = np.array([[1.0], [2.0**20]])


class BallastSettings(Struct, frozen=True):
    """How full a node may be by usage, and how often its ballast is written."""

    cpu_threshold: float = 0.8  # of capacity
    memory_threshold: float = 0.85
    window_s: float = 300.0  # usage is averaged over it; feed silent for two of them: released
    step: float = 0.02  # least change worth a write, of allocatable
    release: float = 0.5  # of the threshold: a node used less is open
    write_interval_s: float = 60.0  # between two writes of one node
    taint_hysteresis: float = 0.1  # of the threshold: how far below it a tainted node is open


class NodeColumns(Struct, frozen=True, eq=False):
    """What is known of n nodes: arrays of shape (2, n), CPU and memory."""

    capacity: Floats
    allocatable: Floats
    usage: Floats  # mean over the window; NaN: never measured
    young: Floats  # of pods younger than the window: requests beyond their own usage
    requested: Floats  # by all pods but ballast, as the scheduler counts them
    measured_s: Floats | float = -np.inf  # (n,) of the newest usage that is whole; -inf: never


class NodeStates(Struct, frozen=True, eq=False):
    """What else decides over n nodes: arrays of length n."""

    is_excluded: Bools  # by the node selector or by its label
    is_pressed: Bools  # a condition of pressure, or not Ready
    is_cordoned: Bools
    is_draining: Bools  # being deleted or emptied by a node autoscaler


class HeldBallast(Struct, frozen=True, eq=False):
    """The ballast pods that there are."""

    requests: Floats  # (2, n); NaN: the node has none that can be resized
    written_s: Floats  # (n,) when we last wrote; -inf: never
    # (n,) written whatever it was and when: a second pod of the node takes over, or has no room.
    is_urgent: Bools | bool = False
    # (n,) a user's pod of less priority is on the node, whose preemption would make room there.
    has_lesser: Bools | bool = False


class Reason(enum.IntEnum):
    """Why a node's ballast is what it is, in the order in which they are looked at."""

    NO_BALLAST = 0  # nothing there to resize
    UNREADABLE = 1  # capacity or allocatable make no sense: left alone
    EXCLUDED = 2
    LOWER_PRIORITY = 3  # a user's pod on it could be preempted for one that ballast keeps out
    DRAINING = 4
    CORDONED = 5
    PRESSURE = 6
    STALE_USAGE = 7  # of CPU or memory: nothing measured for two windows
    LOW_USAGE = 8  # used less than is worth holding anything
    WITHIN_STEP = 9
    TOO_SOON = 10  # written less than a write interval ago
    LOADED = 11  # set to what the load asks for

    @property
    def token(self) -> str:
        """Return it as conditions, events and metrics write it: ``StaleUsage``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


# Let go at once, whatever was written a moment ago.
_RELEASING = (Reason.EXCLUDED, Reason.LOWER_PRIORITY, Reason.DRAINING, Reason.CORDONED,
              Reason.PRESSURE, Reason.STALE_USAGE)  # fmt: skip


class BallastPlan(Struct, frozen=True, eq=False):
    """What each node's ballast should request."""

    requests: Floats  # (2, n), whole units
    is_due: Bools  # (n,) whether it is to be written now
    reason: NDArray[np.uint8]  # (n,) ``Reason``


def plan(
    nodes: NodeColumns,
    states: NodeStates,
    held: HeldBallast,
    thresholds: Floats,
    now: float,
    settings: BallastSettings,
) -> BallastPlan:
    """Return what the ballast of each node should request, and why; ``thresholds`` is (2, 1) or
    (2, n)."""
    with np.errstate(invalid="ignore"):
        reason = standing(nodes, states, held, now, settings)
        wanted = needed(nodes, thresholds)
        share = nodes.usage / (thresholds * nodes.capacity)
        # A node that is open takes up ballast a step above where it would let it go.
        is_held = held.requests > LEAST
        edge = settings.release + np.where(is_held, 0.0, settings.step)
        wanted = np.where(share >= edge, wanted, LEAST)
        is_low = share < edge
        is_loaded = reason == Reason.LOADED
        reason = np.where(is_loaded & is_low.all(axis=0), Reason.LOW_USAGE, reason)
        is_releasing = np.isin(reason, _RELEASING)
        wanted = np.where(is_releasing, LEAST, wanted)
        wanted = np.where(reason <= Reason.UNREADABLE, np.nan, wanted)
        change = np.abs(wanted - held.requests)
        # The last bit of a release is worth a write as well, the last bit of a load is not.
        is_let_go = (wanted == LEAST) & (change > 0)
        is_worth = (is_let_go | (change >= settings.step * nodes.allocatable)).any(axis=0)
    is_deciding = (reason == Reason.LOADED) | (reason == Reason.LOW_USAGE)
    reason = np.where((reason == Reason.LOADED) & ~is_worth, Reason.WITHIN_STEP, reason)
    is_recent = (now - held.written_s < settings.write_interval_s) & ~np.asarray(held.is_urgent)
    too_soon = is_recent & is_deciding & is_worth
    reason = np.where(too_soon, Reason.TOO_SOON, reason)
    is_due = (is_worth | held.is_urgent) & (is_releasing | (is_deciding & ~too_soon))
    return BallastPlan(wanted, is_due, reason.astype(np.uint8))


def needed(nodes: NodeColumns, thresholds: Floats) -> Floats:
    """Return R = clamp(U + A − θ·C − Σ, 0, A − Σ) in whole units, at least ``LEAST``; U
    includes what young pods have requested and do not use yet."""
    room = nodes.allocatable - nodes.requested
    load = nodes.usage + nodes.young - thresholds * nodes.capacity
    # Rounded up: of two sizes next to each other the one that refuses.
    wanted = np.ceil((load + room) / _UNIT) * _UNIT
    return np.asarray(np.maximum(np.minimum(wanted, np.floor(room / _UNIT) * _UNIT), LEAST))


def standing(
    nodes: NodeColumns, states: NodeStates, held: HeldBallast, now: float, settings: BallastSettings
) -> NDArray[np.int64]:
    """Return the ``Reason`` by which each node is left alone or let go; ``LOADED``: its load
    decides."""
    sizes = np.stack([nodes.capacity, nodes.allocatable, nodes.requested, nodes.young])
    readable = (np.isfinite(sizes) & (sizes >= 0)).all(axis=(0, 1)) & (nodes.capacity > 0).all(0)
    unknown = ~(np.isfinite(nodes.usage) & (nodes.usage >= 0)).all(axis=0)
    looked_at = (
        (Reason.NO_BALLAST, np.isnan(held.requests).any(axis=0)),
        (Reason.UNREADABLE, ~readable),
        (Reason.EXCLUDED, states.is_excluded),
        (Reason.LOWER_PRIORITY, np.full(unknown.shape, held.has_lesser)),
        (Reason.DRAINING, states.is_draining),
        (Reason.CORDONED, states.is_cordoned),
        (Reason.PRESSURE, states.is_pressed),
        (Reason.STALE_USAGE, unknown | (now - nodes.measured_s > 2 * settings.window_s)),
    )
    return np.select([holds for _, holds in looked_at], [int(r) for r, _ in looked_at],
                     int(Reason.LOADED))  # fmt: skip


def renewals(
    nodes: NodeColumns,
    plan: BallastPlan,
    started_s: Floats,
    rival_s: float,
    *,
    is_recent: Bools | bool = False,
) -> NDArray[np.intp]:
    """Return the places whose ballast is made anew: all roomiest ones that are late, and the one
    that is late longest. A pod of a higher class then takes the place of ballast, not that of a
    user's pod of ballast's own class: between pods of one priority kube-scheduler lets stay who
    started first, and of two nodes takes the one whose victim started last.

    ``started_s``: when the ballast of each node started; NaN: it has not, or is being made anew.
    ``rival_s``: when the newest user's pod of its priority did. ``is_recent``: the node was
    written less than a write interval ago, or that was tried; its turn comes later. Where a pod
    fits but for ballast, it fits on one of the roomiest nodes, and there the victim that started
    last is ballast.
    """
    is_held = (plan.requests > LEAST).any(axis=0)
    room = nodes.allocatable - nodes.requested
    # A second ballast pod would wait for ever; nor does any other pod that requests both fit.
    can_surge = (room >= 2 * LEAST).all(axis=0)
    is_settled = np.isin(plan.reason, (Reason.LOADED, Reason.WITHIN_STEP)) & ~np.asarray(is_recent)
    is_late = is_held & can_surge & is_settled & (started_s <= rival_s)
    late = np.flatnonzero(is_late)
    if not len(late):
        return late
    longest = late[np.argmin(started_s[late])]
    roomiest = _roomiest(room, np.flatnonzero(is_held))
    return np.union1d(roomiest[is_late[roomiest]], longest)


def _roomiest(room: Floats, places: NDArray[np.intp]) -> NDArray[np.intp]:
    # Those of ``places`` of which no other has more room of both resources.
    by_cpu = places[np.lexsort((-room[MEMORY, places], -room[CPU, places]))]
    memory = room[MEMORY, by_cpu]
    most_before = np.maximum.accumulate(np.concatenate(([-np.inf], memory[:-1])))
    found: NDArray[np.intp] = by_cpu[memory > most_before]
    return found


class TaintPlan(Struct, frozen=True, eq=False):
    """Which of n nodes are to have the taint, the coarse way where pods cannot be resized: arrays
    of length n."""

    is_wanted: Bools
    is_due: Bools  # whether it is to be written now
    reason: NDArray[np.uint8]  # ``Reason``


def taint_plan(
    nodes: NodeColumns,
    states: NodeStates,
    is_tainted: Bools,
    written_s: Floats,
    thresholds: Floats,
    now: float,
    settings: BallastSettings,
) -> TaintPlan:
    """Return which nodes get the taint and which lose it.

    A node gets it where CPU or memory is used up to the threshold, and keeps it until both are
    below ``1 - taint_hysteresis`` of theirs. What lets ballast go takes it away at once.
    """
    none = HeldBallast(np.broadcast_to(LEAST, nodes.usage.shape), written_s)
    reason = standing(nodes, states, none, now, settings)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = ((nodes.usage + nodes.young) / (thresholds * nodes.capacity)).max(axis=0)
        edge = np.where(is_tainted, 1.0 - settings.taint_hysteresis, 1.0)
        is_loaded = (reason == Reason.LOADED) & (share >= edge)
    is_deciding = reason == Reason.LOADED
    reason = np.where(is_deciding & ~is_loaded, Reason.LOW_USAGE, reason)
    is_changed = is_loaded != is_tainted
    too_soon = is_changed & is_deciding & (now - written_s < settings.write_interval_s)
    reason = np.where(too_soon, Reason.TOO_SOON, reason)
    return TaintPlan(is_loaded, is_changed & ~too_soon, reason.astype(np.uint8))


def refuses(
    nodes: NodeColumns, plan: BallastPlan, requested: Floats, pod: tuple[float, float]
) -> Bools:
    """Return which nodes the fit check would refuse to ``pod`` (thousandths of a core, bytes) with
    the ballast of ``plan``.

    ``requested``: by all pods but ballast and headroom, now. A resource that the pod does not
    request, and one of which ballast would hold its least, refuses nothing.
    """
    full = np.zeros(requested.shape[1], np.bool_)
    for row, wanted in enumerate(pod):
        if wanted > 0:
            held = plan.requests[row]
            room = nodes.allocatable[row] - held - requested[row]
            full |= (wanted > room) & (held > LEAST[row])  # NaN: cannot be read, left alone
    return full


def scores(
    nodes: NodeColumns, thresholds: Floats, requested: Floats, pod: tuple[float, float]
) -> NDArray[np.int64]:
    """Return 0 to ``BEST_SCORE``: the further below its thresholds a node stays with the pod, the
    better. What was never measured counts as full.

    ``requested`` as for ``refuses``: what came since ``nodes`` were read counts as young, and a
    young pod that has gone does not any more.
    """
    young = np.maximum(nodes.young + requested - nodes.requested, 0.0)
    load = nodes.usage + young + np.array(pod)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (load / (thresholds * nodes.capacity)).max(axis=0)
    left = 1.0 - np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
    return np.asarray(np.rint(BEST_SCORE * left), np.int64)
