"""An HPA and the VPAs of its target: whether they drift, or are coordinated. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from adapter.doctor.objects import Hpa, HpaMetric, LintedVpa
from podscale.coordinate.drift import drift
from podscale.coordinate.pairing import CONDITION, Pairing, VpaSide, pair, vpa_side
from podscale.core.settings import COORDINATE

HPA_AND_VPA = "HPAAndVPA"
TWO_VPAS = "TwoVPAs"
NOT_COORDINATED = "NotCoordinated"

_ASKED = f"this HPA asks for it by {COORDINATE}"


def beside_vpas(hpa: Hpa, vpas: Sequence[LintedVpa]) -> Iterator[tuple[str, str]]:
    """Yield lint and reason; ``vpas`` have the target of ``hpa``."""
    acting = [each for each in vpas if each.changes]
    if len(acting) > 1:
        names = " and ".join(sorted(f"vpa/{each.metadata.name}" for each in acting)[:2])
        text = f"{len(acting)} VPAs have its target ({names}), and which of them sizes a pod is"
        yield TWO_VPAS, f"{text} chance: delete all but one"
    asked = (hpa.metadata.annotations or {}).get(COORDINATE)
    condition = hpa.conditions.get(CONDITION)
    found = _pairing(hpa, vpas)
    if asked == "on" and found.vpa is None and found.reason != "TwoVpas":
        yield NOT_COORDINATED, f"{_ASKED}, and {found.text}: it scales as without it"
    elif asked == "on" and condition is None:
        text = f"{_ASKED}, and has no condition {CONDITION}: podscale's HPA part does not act on it"
        yield NOT_COORDINATED, f"{text} (mode replace or own)"
    is_held = found.vpa is not None and condition is not None and asked != "off"
    for vpa in acting:
        used = [m for m in hpa.metrics if m.is_share and m.about and m.about.name in vpa.changes]
        for metric in [m for m in used if not (is_held and m.about and m.about.name == "cpu")][:1]:
            yield HPA_AND_VPA, _drifts(hpa, metric, vpa)


def _pairing(hpa: Hpa, vpas: Sequence[LintedVpa]) -> Pairing:
    sides = [vpa_side(each.metadata.name, msgspec.json.encode(each.spec)) for each in vpas]
    held = next((m.about for m in hpa.metrics if m.is_share and m.about and m.about.name == "cpu"),
                None)  # fmt: skip
    known: list[VpaSide] = [each for each in sides if each is not None]
    return pair(None if held is None else held.container, known)


def _drifts(hpa: Hpa, metric: HpaMetric, vpa: LintedVpa) -> str:
    about = metric.about
    assert about is not None  # noqa: S101 - by the caller
    text = (
        f"vpa/{vpa.metadata.name} changes the requests of {about.name} that this HPA measures "
        "usage against"
    )
    ways = "scale by another metric, or take the resource out of the VPA's controlledResources"
    if about.name != "cpu" or about.target.average_utilization is None:
        return f"{text}: {ways}"
    used, sized = hpa.used_cpu(about.container), vpa.sized_cpu(about.container)
    return (
        f"{text}; {drift(about.target.average_utilization, used, sized)}. Where podscale acts on "
        f'both, set {COORDINATE}: "on"; otherwise {ways}'
    )
