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


class Moment(Struct, frozen=True):
    """What both would have asked for; ``None``: nothing, the size is held."""

    time_s: float
    values: Mapping[str, float | None]  # the answer, None where there was no number
    old: int | None
    new: int | None

    @property
    def differs(self) -> bool:
        """Return whether moving would have changed the size."""
        return self.old != self.new


def comparison(
    compared: Comparable, time_s: float, answers: Mapping[str, Sequence[float]]
) -> Moment:
    """Return what both would have asked for, by the elements that each query answered."""
    old: list[int | None] = []
    new: list[int | None] = []
    values: dict[str, float | None] = {}
    for metric in compared.metrics:
        numbers = [each for each in answers.get(metric.name, ()) if math.isfinite(each)]
        values[metric.name] = sum(numbers) if numbers else None
        new.append(_replicas(values[metric.name], metric) if numbers else compared.fallback)
        if len(answers.get(metric.name, ())) > 1:
            old.append(compared.fallback)  # KEDA refuses several elements
        elif numbers:
            old.append(_replicas(numbers[0], metric))
        else:
            old.append(_replicas(0.0, metric) if metric.silence_is_zero else compared.fallback)
    return Moment(time_s, values, _within(compared, old), _within(compared, new))


def _replicas(value: float | None, metric: ComparedMetric) -> int:
    replicas = (value or 0.0) / metric.target
    # What is beyond any size is cut to the limits afterwards; infinity has no whole number.
    return math.ceil(max(min(replicas, _MOST), -_MOST))


def _within(compared: Comparable, sizes: Sequence[int | None]) -> int | None:
    known = [each for each in sizes if each is not None]
    if not known:
        return None
    largest = max(known)
    return min(max(largest, compared.least), compared.most)


class Remark(Struct, frozen=True):
    """One thing about one object of the input."""

    about: str  # "ScaledObject shop/web: triggers[1]"
    text: str


class MigrationOutcome(Struct, frozen=True, kw_only=True):
    """Nothing is applied by us: a person reads this and acts."""

    read: Sequence[str] = ()  # what was understood of the input, by kind and name
    kept: Sequence[str] = ()  # not read: what stands beside a program, and serves ours as well
    manifests: Sequence[Mapping[str, object]] = ()
    rules: Mapping[str, Sequence[Mapping[str, object]]] = {}  # section -> rules to add
    flags: Sequence[str] = ()  # arguments to give to podscale
    refused: Sequence[Remark] = ()  # has to be changed first, or the program does not start
    left_out: Sequence[Remark] = ()  # would be refused, and is not among what is to be applied
    broken: Sequence[Remark] = ()  # what answers nothing, with the program before as well
    lost: Sequence[Remark] = ()  # cannot be carried over, and why
    differs: Sequence[Remark] = ()
    steps: Sequence[str] = ()
    back: Sequence[str] = ()
    compared: Sequence[Comparable] = ()  # what history can be asked about


def together(outcomes: Iterable[MigrationOutcome]) -> MigrationOutcome:
    """Return one outcome of several; repeated flags, steps and remarks are said once."""
    every = list(outcomes)
    rules: dict[str, list[Mapping[str, object]]] = {}
    for each in every:
        for section, found in each.rules.items():
            rules.setdefault(section, []).extend(found)
    return MigrationOutcome(
        read=[text for each in every for text in each.read],
        kept=[text for each in every for text in each.kept],
        manifests=[manifest for each in every for manifest in each.manifests],
        rules=rules,
        flags=list(dict.fromkeys(flag for each in every for flag in each.flags)),
        refused=list(dict.fromkeys(remark for each in every for remark in each.refused)),
        left_out=list(dict.fromkeys(remark for each in every for remark in each.left_out)),
        broken=list(dict.fromkeys(remark for each in every for remark in each.broken)),
        lost=list(dict.fromkeys(remark for each in every for remark in each.lost)),
        differs=list(dict.fromkeys(remark for each in every for remark in each.differs)),
        steps=list(dict.fromkeys(step for each in every for step in each.steps)),
        back=list(dict.fromkeys(step for each in every for step in each.back)),
        compared=[found for each in every for found in each.compared],
    )
