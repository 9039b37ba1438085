"""An amount and what led to it, in the words of whoever pays for it.

Percentiles, margins and confidences stay in the facts; here they are what was used, what is
added, and for how long it is known.
"""

from collections.abc import Mapping

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from vpa.explain.explanation import Fact
from vpa.model.api.quantities import of_units
from vpa.model.estimation.amounts import humanized


def readable(resource: str, amount: object) -> str:
    """Return an amount as people write it: ``250m``, ``825.82Mi``; the facts keep every byte."""
    text = "" if amount is None else str(amount)
    if resource not in ("cpu", "memory") or not text:
        return text
    try:
        parsed = quantity.parse(text)
    except QuantityError:
        return text
    if resource == "memory":
        return _bytes(parsed.value)
    milli = parsed.milli
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def because(resource: str, reason: str, facts: Mapping[str, Fact]) -> str:
    """Return why an amount is what it is, to follow "because"; "" where only the reason's own
    sentence says it.
    """

    def amount(name: str) -> str:
        return readable(resource, facts.get(name))

    match reason:
        case "PercentileOfUsage":
            return f"{_used(resource, facts)}{_added(facts)}"
        case "MemoryPeakHolds":
            return f"it peaked at {amount('peak_bytes')}, which fades{_added(facts)}"
        case "OomBump":
            return (
                f"it was killed for memory with a request of {amount('requested_bytes')}, and "
                f"{amount('bumped_bytes')} counts as used{_added(facts)}"
            )
        case "MinAllowed":
            return f"minAllowed is {amount('min')}"
        case "MaxAllowed":
            return f"maxAllowed is {amount('max')}"
        case "PodMinimum":
            return "no pod is recommended less"
        case "CpuRoundedToCore":
            return "an annotation asks for whole cores"
        case "NodeSize":
            return "no node could run a larger pod"
    return ""


def history(facts: Mapping[str, Fact]) -> str:
    """Return a remark on how much is known; "" where that is a day or more."""
    known = facts.get("confidence")
    return "; little history yet" if isinstance(known, int | float) and known < 1 else ""


def _used(resource: str, facts: Mapping[str, Fact]) -> str:
    usage, share = facts.get("usage"), facts.get("percentile")
    if not isinstance(usage, int) or not isinstance(share, int | float):
        return "of what it used"
    shown = readable(resource, str(of_units(resource, usage)))
    if resource == "memory":
        return f"it peaked at {shown}"
    return f"it used up to {shown} in {100 * share:g}% of the time"


def _added(facts: Mapping[str, Fact]) -> str:
    margin = facts.get("margin")
    return f", and {100 * margin:g}% is added" if isinstance(margin, int | float) and margin else ""


def _bytes(value: int) -> str:
    text = humanized(value)
    number, unit = (text[:-2], text[-2:]) if text.endswith("i") else (text, "")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + unit
