"""An HPA as the recommender reads it: what it holds its pods to, and which anchor it follows.

Whether it coordinates is said by the HPA part that acts on it, in the condition ``Coordinated``:
an HPA that somebody else acts on never gets one. A part that is dead leaves its status behind, so
that nothing in it is a measurement of the present. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from podscale.coordinate.anchor import Anchor, anchor_clause
from podscale.coordinate.pairing import CONDITION
from podscale.core.quantity import QuantityError, from_wire
from podscale.core.settings import COMFORT, COORDINATE, PAUSED
from podscale.kube.client.wire import Quantity
from podscale.kube.objects import autoscaler as wire

_BAND = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


class ComfortError(ValueError):
    """The text is no band; the message says what one looks like."""


def parse_comfort(text: str | None) -> tuple[int, int] | None:
    """Return both ends; None where nothing is written; raises ``ComfortError``."""
    if text is None:
        return None
    found = _BAND.fullmatch(text.strip())
    if found is None or not 0 < int(found[1]) <= int(found[2]):
        raise ComfortError(f"{text[:40]!r} is no band of replicas like 3-30")
    return int(found[1]), int(found[2])


def comfort_of(text: str | None, least: int, most: int, kept: int | None) -> tuple[int, int]:
    """Return the band: as written, where that can be read; else from the fewest replicas, or one
    more than a disruption budget keeps, to half of the most."""
    try:
        written = parse_comfort(text)
    except ComfortError:
        written = None
    if written is not None:
        return written
    low = max(least, 1, 0 if kept is None else kept + 1)
    return low, max(low, most // 2)


# An HPA part that starts does not know the VPAs yet, and one that is made anew shows up late.
_PAIRED = ("AnchorHeld", "NoAnchor", "VpasUnknown", "NoVpa")
_ACTIVE, _ABLE = "ScalingActive", "AbleToScale"
_STABILIZED = ("ScaleDownStabilized", "ScaleUpStabilized")
_DEFAULT_WINDOW_S = 300.0
# Of the target: the HPA tells of usage that moved by half of it, and of pods that are ready.
_ALIKE = 0.2
_NONE = wire.AutoscalerCondition()


class HorizontalSide(Struct, frozen=True):
    """What an HPA that coordinates says of itself; milli-units, seconds."""

    name: str
    target: wire.CrossVersionObjectReference
    container: str  # "": the whole pod is counted
    utilization: int
    min_replicas: int
    max_replicas: int
    window_s: float  # the longest stabilization window
    comfort: str | None  # as it is written
    used: int | None  # by a pod, on average, when it was last told
    followed: str  # what it says of its anchor; "": paused, without metrics, or without one
    is_stabilizing: bool  # a window alone keeps it from a rescale
    is_new: bool  # nobody has acted on it yet, and its owner wants it to coordinate

    def follows(self, anchor: Anchor) -> bool:
        """Return whether its last decisions were by this anchor."""
        return self.followed.endswith(anchor_clause(anchor))

    def knows(self, used: float, anchor: Anchor) -> bool:
        """Return whether it tells of what a pod uses now, as one that acts does."""
        target = self.utilization * anchor.milli / 100.0
        return self.used is not None and abs(self.used - used) <= _ALIKE * target

    def band(self, kept: int | None) -> tuple[int, int]:
        """Return the comfort band, where a disruption budget keeps so many pods."""
        return comfort_of(self.comfort, self.min_replicas, self.max_replicas, kept)


def horizontal_side(written: wire.Autoscaler) -> HorizontalSide | None:
    """Return what the HPA says; None where it does not coordinate."""
    spec, status, annotations = written.spec, written.status, written.metadata.annotations or {}
    conditions = {each.type: each for each in status.conditions or ()}
    reason = conditions.get(CONDITION, _NONE).reason
    is_new = not conditions and annotations.get(COORDINATE) == "on"
    if reason not in _PAIRED and not is_new:
        return None
    is_active = conditions.get(_ACTIVE, _NONE).status == "True"
    is_following = is_active and reason == "AnchorHeld" and not _is_paused(annotations)
    held = next((each for each in _cpu(spec.metrics) if each.target.average_utilization), None)
    if held is None or held.target.average_utilization is None:
        return None
    behavior = spec.behavior
    windows = () if behavior is None else (behavior.scale_up, behavior.scale_down)
    shown = (each for each in _cpu(status.current_metrics) if each.container == held.container)
    current = next(shown, None)
    return HorizontalSide(
        written.metadata.name,
        spec.scale_target_ref,
        held.container,
        held.target.average_utilization,
        1 if spec.min_replicas is None else spec.min_replicas,
        spec.max_replicas,
        max(
            [float(each.stabilization_window_seconds or 0) for each in windows if each], default=0.0
        )
        if behavior
        else _DEFAULT_WINDOW_S,
        annotations.get(COMFORT),
        None if current is None else _milli(current.current.average_value),
        conditions[CONDITION].message if is_following else "",
        conditions.get(_ABLE, _NONE).reason in _STABILIZED,
        is_new,
    )


def _cpu(metrics: Sequence[wire.AutoscalerMetric] | None) -> Iterator[wire.AutoscalerSource]:
    for each in metrics or ():
        source = each.sources.get(each.type)
        if source is not None and source.name == "cpu":
            yield source


def _is_paused(annotations: Mapping[str, str]) -> bool:
    return annotations.get(PAUSED, "").strip().lower() == "true"


def _milli(amount: Quantity | None) -> int | None:
    try:
        return None if amount is None else from_wire(amount).milli
    except QuantityError:
        return None
