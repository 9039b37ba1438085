"""Amounts in the words of people: milli-units, shares and ages."""

_TWO_POWERS = ("", "Ki", "Mi", "Gi", "Ti")


def amount(milli: int, name: str = "") -> str:
    """Return an amount of the metric or resource ``name``.

    Memory reads in powers of two, cpu as in manifests, anything else as a plain number.
    """
    if name == "cpu" and milli % 1000:
        return f"{milli}m"
    if name != "memory":
        whole, fraction = divmod(abs(milli), 1000)
        text = f"{whole}.{fraction:03}".rstrip("0").rstrip(".")
        return f"-{text}" if milli < 0 else text
    size = milli / 1000
    power = 0
    while abs(size) >= 1024 and power < len(_TWO_POWERS) - 1:
        size /= 1024
        power += 1
    return f"{size:.4g}{_TWO_POWERS[power]}"


def share(ratio: float) -> str:
    return f"{ratio * 100:.4g} %"


def age(seconds: float) -> str:
    """Return a span of time, rounded."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def count(number: int, noun: str) -> str:
    """Return ``1 pod``, ``2 pods``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def verb(names: tuple[str, ...] | list[str], one: str, many: str) -> str:
    """Return the form of a verb that goes with so many names."""
    return one if len(names) == 1 else many


def listed(names: tuple[str, ...] | list[str], most: int = 5) -> str:
    """Return the names, cut after ``most``."""
    shown = ", ".join(names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
