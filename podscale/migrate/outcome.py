"""What a migration comes to: manifests, and everything a person has to know beside them.

Old and new are compared by the number that the external metrics ask for at past moments, within
the limits: no tolerance, no stabilization, no behavior, which both sides share.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

_MOST = 2.0**31 - 1


class ComparedMetric(Struct, frozen=True):
    """One metric with an average target; others depend on the size, and are left out."""

    name: str
    query: str
    target: float  # per replica
    silence_is_zero: bool  # KEDA's ignoreNullValues, on a query without a default of its own


class Comparable(Struct, frozen=True):
    """What of a ScaledObject can be compared."""

    about: str
    metrics: Sequence[ComparedMetric]
    least: int
    most: int
    fallback: int | None = None  # replicas; None: the size is held
    left_out: Sequence[str] = ()  # metrics that cannot be compared


def comparison(
    compared: Comparable, answers: Mapping[str, Sequence[float]]
) -> tuple[int | None, int | None]:
    """Return the replicas that KEDA and that podscale would have asked for, by the elements that
    each query answered; ``None``: nothing, the size is held.
    """
    old: list[int | None] = []
    new: list[int | None] = []
    for metric in compared.metrics:
        elements = answers.get(metric.name, ())
        numbers = [each for each in elements if math.isfinite(each)]
        new.append(_replicas(sum(numbers), metric) if numbers else compared.fallback)
        if len(elements) > 1 or not (numbers or metric.silence_is_zero):
            old.append(compared.fallback)  # KEDA refuses several elements
        else:
            old.append(_replicas(sum(numbers), metric))
    return _within(compared, old), _within(compared, new)


def _replicas(value: float, metric: ComparedMetric) -> int:
    # What is beyond any size is cut to the limits afterwards; infinity has no whole number.
    return math.ceil(max(min(value / metric.target, _MOST), -_MOST))


def _within(compared: Comparable, sizes: Sequence[int | None]) -> int | None:
    largest = max((each for each in sizes if each is not None), default=None)
    return None if largest is None else min(max(largest, compared.least), compared.most)


class Remark(Struct, frozen=True):
    about: str  # "ScaledObject shop/web: triggers[1]"
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


class MigrationOutcome(Struct, kw_only=True):
    """Nothing is applied by us: a person reads this and acts."""

    read: list[str] = []  # what was understood of the input, by kind and name
    kept: list[str] = []  # not read: what stands beside a program, and serves ours as well
    manifests: list[Mapping[str, object]] = []
    rules: dict[str, list[Mapping[str, object]]] = {}  # section -> rules to add
    sources: list[Mapping[str, object]] = []  # of the sources file, which rules name
    servers: list[str] = []  # what adapters of the input read already: the first is the default
    flags: list[str] = []  # arguments to give to podscale
    refused: list[Remark] = []  # has to be changed first, or the program does not start
    left_out: list[Remark] = []  # would be refused, and is not among what is to be applied
    broken: list[Remark] = []  # what answers nothing, with the program before as well
    lost: list[Remark] = []  # cannot be carried over, and why
    differs: list[Remark] = []
    steps: list[str] = []
    back: list[str] = []
    compared: list[Comparable] = []  # what history can be asked about


class RemarksOn(Struct, frozen=True):
    """Adds what is to be said of one place of the input."""

    about: str
    outcome: MigrationOutcome

    def lose(self, text: str) -> None:
        self.outcome.lost.append(Remark(self.about, text))

    def differ(self, text: str) -> None:
        self.outcome.differs.append(Remark(self.about, text))


_LISTS = [name for name in MigrationOutcome.__struct_fields__ if name != "rules"]
_ONCE = ("flags", "refused", "left_out", "broken", "lost", "differs", "steps", "back")


def together(outcomes: Iterable[MigrationOutcome]) -> MigrationOutcome:
    """Return one outcome of several; repeated flags, steps and remarks are said once."""
    whole = MigrationOutcome()
    for each in outcomes:
        for section, rules in each.rules.items():
            whole.rules.setdefault(section, []).extend(rules)
        for name in _LISTS:
            getattr(whole, name).extend(getattr(each, name))
    for name in _ONCE:
        setattr(whole, name, list(dict.fromkeys(getattr(whole, name))))
    return whole
