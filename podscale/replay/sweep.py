"""Many specs from one: every combination of some values of some fields. Pure.

``target=50..90:5`` and ``scaleDown.stabilizationWindowSeconds=0,60,300``: fields of ``spec`` as
they are written, ``target`` for that of a metric, ``scaleUp`` and ``scaleDown`` for those of
behavior.
"""

import copy
import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpa.simulate.loop import RunVerdict
from podscale.core.quantity import Quantity, QuantityError
from podscale.core.quantity import parse as parse_quantity
from podscale.kube.objects.autoscaler import AutoscalerSpec
from podscale.replay.inputs import ReplayError

MOST_COMBINATIONS = 10_000
_RANGE = re.compile(r"([^.,:]+(?:\.[0-9]+)?[a-zA-Z]*)\.\.([^:,]+):([^:,]+)")
_STEP = re.compile(r"([A-Za-z]+)(?:\[([0-9]+)\])?")
_WHOLE = re.compile(r"[0-9]+")
_FIRST = (*AutoscalerSpec.__struct_encode_fields__, "target", "scaleUp", "scaleDown")
_TARGETS = ("averageUtilization", "averageValue", "value")


class SweptField(Struct, frozen=True):
    """One field and the values that it takes."""

    path: str
    values: tuple[str, ...]


class SweptSpec(Struct, frozen=True):
    """One combination: what it is called and the object it makes."""

    name: str
    plain: Mapping[str, Any]


def swept_field(text: str) -> SweptField:
    """Return what ``PATH=VALUES`` says; raises ``ReplayError``."""
    path, equals, listed = text.partition("=")
    found = _RANGE.fullmatch(listed)
    if not path or not equals or not listed or (found is None and ".." in listed):
        raise ReplayError(
            f"--sweep {text}: write a field of spec and its values: target=50..90:5 (from 50 to 90 "
            "in steps of 5) or scaleDown.stabilizationWindowSeconds=0,60,300"
        )
    if found is None:
        values = tuple(each.strip() for each in listed.split(","))
    else:
        try:
            start, end, step = (parse_quantity(each) for each in found.groups())
        except QuantityError as error:
            raise ReplayError(f"--sweep {text}: {error}") from None
        if step.nano <= 0 or end.nano < start.nano:
            raise ReplayError(f"--sweep {text}: FROM..TO:STEP goes up, by more than 0")
        count = (end.nano - start.nano) // step.nano + 1
        _bounded(count, text)
        values = tuple(str(Quantity(start.nano + place * step.nano, start.format))
                       for place in range(count))  # fmt: skip
    if not all(values):
        raise ReplayError(f"--sweep {text}: a value is empty")
    return SweptField(path.removeprefix("spec."), tuple(dict.fromkeys(values)))


def combinations(base: Mapping[str, Any], fields: Sequence[SweptField]) -> list[SweptSpec]:
    """Return every combination; raises ``ReplayError`` for a field that is none, and too many."""
    count = 1
    for each in fields:
        count *= len(each.values)
    _bounded(count, " ".join(each.path for each in fields))
    found = []
    for values in itertools.product(*(each.values for each in fields)):
        made: dict[str, Any] = copy.deepcopy(dict(base))
        names = []
        for field, value in zip(fields, values, strict=True):
            _put(made, field.path, value)
            names.append(f"{field.path}={value}")
        found.append(SweptSpec(" ".join(names), made))
    return found


def pareto(rows: Sequence[tuple[str, RunVerdict]]) -> list[str]:
    """Return the names that no other beats in pod-hours and unserved load, cheapest first."""
    front: list[str] = []
    least = float("inf")
    for name, verdict in sorted(rows, key=lambda row: (row[1].pod_hours, row[1].unserved)):
        if verdict.unserved < least:
            front.append(name)
            least = verdict.unserved
    return front


def chosen(rows: Sequence[tuple[str, RunVerdict]], most_unserved: float) -> str | None:
    """Return the cheapest that leaves no more unserved, or None."""
    fitting = [(verdict.pod_hours, name) for name, verdict in rows
               if verdict.unserved <= most_unserved]  # fmt: skip
    return min(fitting)[1] if fitting else None


def _bounded(count: int, what: str) -> None:
    if count > MOST_COMBINATIONS:
        raise ReplayError(
            f"--sweep {what}: {count} combinations, and {MOST_COMBINATIONS} are the most: "
            "give fewer values, or a larger step"
        )


def _put(plain: dict[str, Any], path: str, value: str) -> None:
    spec = plain["spec"]
    first = path.partition(".")[0].partition("[")[0]
    if first not in _FIRST:
        near = difflib.get_close_matches(first[:100], _FIRST, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_FIRST)}"
        raise ReplayError(f"--sweep {path}: unknown field spec.{first}; {hint}")
    if first in ("scaleUp", "scaleDown"):
        path = f"behavior.{path}"
    elif first == "target" or path.endswith(".target"):
        _put_target(spec, path, value)
        return
    steps: list[str | int] = []
    for part in path.split("."):
        read = _STEP.fullmatch(part)
        if read is None:
            raise ReplayError(f"--sweep {path}: {part!r} is no field")
        steps += [read[1], *([int(read[2])] if read[2] else [])]
    at: Any = spec
    for step, following in itertools.pairwise(steps):
        if isinstance(step, int):
            at = _element(at, step, path)
        else:
            if at.get(step) is None:
                if isinstance(following, int):
                    raise ReplayError(f"--sweep {path}: the spec has no {step}")
                at[step] = {}
            at = at[step]
    last = steps[-1]
    if isinstance(last, int) or not isinstance(at, dict):
        raise ReplayError(f"--sweep {path}: this is no field that has one value")
    at[last] = int(value) if _WHOLE.fullmatch(value) else value


def _element(at: Any, place: int, path: str) -> Any:
    if not isinstance(at, list) or place >= len(at):
        raise ReplayError(f"--sweep {path}: there is no entry {place}")
    return at[place]


def _put_target(spec: dict[str, Any], path: str, value: str) -> None:
    metrics = spec.get("metrics") or []
    place = re.fullmatch(r"metrics\[([0-9]+)\]\.target", path)
    if place is None and (path != "target" or len(metrics) != 1):
        raise ReplayError(f"--sweep {path}: of several metrics say which, metrics[0].target")
    metric = _element(metrics, int(place[1]) if place else 0, path)
    source = metric.get(metric["type"][:1].lower() + metric["type"][1:]) or {}
    target = source.get("target") or {}
    for name in _TARGETS:
        if target.get(name) is not None:
            target[name] = int(value) if _WHOLE.fullmatch(value) and name == _TARGETS[0] else value
            return
    raise ReplayError(f"--sweep {path}: the metric has no target")
