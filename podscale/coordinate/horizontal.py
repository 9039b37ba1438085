"""An HPA as the recommender reads it: what it holds its pods to, and which anchor it follows.

Whether it coordinates is said by the HPA part that acts on it, in the condition ``Coordinated``:
an HPA that somebody else acts on never gets one. A part that is dead leaves its status behind, so
that nothing in it is a measurement of the present. Pure.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from podscale.coordinate.anchor import Anchor, anchor_clause
from podscale.coordinate.comfort import comfort_of
from podscale.coordinate.pairing import CONDITION, ScaledObject
from podscale.core.json_decoder import JsonDecoder
from podscale.core.quantity import QuantityError, from_wire
from podscale.core.settings import COMFORT, COORDINATE, PAUSED

# An HPA part that starts does not know the VPAs yet, and one that is made anew shows up late.
_PAIRED = ("AnchorHeld", "NoAnchor", "VpasUnknown", "NoVpa")
_ACTIVE, _ABLE = "ScalingActive", "AbleToScale"
_STABILIZED = ("ScaleDownStabilized", "ScaleUpStabilized")
_DEFAULT_WINDOW_S = 300.0
# Of the target: the HPA tells of usage that moved by half of it, and of pods that are ready.
_ALIKE = 0.2


class _Target(Struct, frozen=True, rename="camel"):
    average_utilization: int | None = None


class _Value(Struct, frozen=True, rename="camel"):
    average_value: str | int | float | None = None


class _Source(Struct, frozen=True, rename="camel"):
    name: str = ""
    container: str = ""
    target: _Target = _Target()
    current: _Value = _Value()


class _Metric(Struct, frozen=True, rename="camel"):
    type: str = ""
    resource: _Source | None = None
    container_resource: _Source | None = None

    @property
    def cpu(self) -> _Source | None:
        source = {"Resource": self.resource, "ContainerResource": self.container_resource}
        found = source.get(self.type)
        return found if found is not None and found.name == "cpu" else None


class _Rules(Struct, frozen=True, rename="camel"):
    stabilization_window_seconds: int | None = None


class _Behavior(Struct, frozen=True, rename="camel"):
    scale_up: _Rules = _Rules()
    scale_down: _Rules = _Rules()


class _Spec(Struct, frozen=True, rename="camel"):
    scale_target_ref: ScaledObject = ScaledObject()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[_Metric, ...] | None = None
    behavior: _Behavior | None = None


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    current_metrics: tuple[_Metric, ...] | None = None
    conditions: tuple[_Condition, ...] | None = None


class HorizontalSide(Struct, frozen=True):
    """What an HPA that coordinates says of itself; milli-units, seconds."""

    name: str
    target: ScaledObject
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


_SPEC = JsonDecoder(_Spec)
_STATUS = JsonDecoder(_Status)


def horizontal_side(
    name: str,
    spec: bytes | msgspec.Raw,
    status: bytes | msgspec.Raw,
    annotations: Mapping[str, str],
) -> HorizontalSide | None:
    """Return what the HPA says; None where it does not coordinate, or cannot be read."""
    try:
        wanted, found = _SPEC.decode(spec), _STATUS.decode(status)
    except msgspec.DecodeError:
        return None
    conditions = {each.type: each for each in found.conditions or ()}
    reason = conditions.get(CONDITION, _Condition()).reason
    is_new = not conditions and annotations.get(COORDINATE) == "on"
    if reason not in _PAIRED and not is_new:
        return None
    is_active = conditions.get(_ACTIVE, _Condition()).status == "True"
    is_following = is_active and reason == "AnchorHeld" and not _is_paused(annotations)
    metrics = [each.cpu for each in wanted.metrics or ()]
    held = next(
        (each for each in metrics if each and each.target.average_utilization is not None), None
    )
    if held is None or not held.target.average_utilization:
        return None
    behavior = wanted.behavior or _Behavior()
    windows = (behavior.scale_up, behavior.scale_down)
    shown = [each.cpu for each in found.current_metrics or ()]
    current = next((each for each in shown if each and each.container == held.container), None)
    return HorizontalSide(
        name,
        wanted.scale_target_ref,
        held.container,
        held.target.average_utilization,
        1 if wanted.min_replicas is None else wanted.min_replicas,
        wanted.max_replicas,
        max(float(each.stabilization_window_seconds or 0) for each in windows)
        if wanted.behavior
        else _DEFAULT_WINDOW_S,
        annotations.get(COMFORT),
        None if current is None else _milli(current.current.average_value),
        conditions[CONDITION].message if is_following else "",
        conditions.get(_ABLE, _Condition()).reason in _STABILIZED,
        is_new,
    )


def _is_paused(annotations: Mapping[str, str]) -> bool:
    return annotations.get(PAUSED, "").strip().lower() == "true"


def _milli(amount: str | int | float | None) -> int | None:
    try:
        return None if amount is None else from_wire(amount).milli
    except QuantityError:
        return None
