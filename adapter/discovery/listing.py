"""From the series of one rule to the metrics it exposes.

Pure. Values of labels never matter here, only their names: a series is its name and its
set of label names (its shape), which keeps a relist of 500,000 series small.
"""

from collections.abc import Mapping

from msgspec import Struct

from adapter.discovery.labels import LabelReading
from adapter.discovery.naming import LONGEST
from adapter.rules.ruleset import Rule
from adapter.stages import Stage
from podscale.feed.http.series import SeriesNames

# Lost series are remembered to explain a 404; a rule that loses more is explained by example.
_REMEMBERED, _MOST_NAMELESS = 2_000, 3


class MetricSource(Struct, frozen=True, gc=False):
    rule: Rule
    series: str


class LostSeries(Struct, frozen=True):
    """A series that exposes nothing, and why."""

    stage: Stage
    labels: frozenset[str]  # what it carries
    unresolved: tuple[str, ...] = ()  # labels that fit the template but name no resource
    name: str | None = None  # what it is called as a metric, if name.matches matches


class RuleListing(Struct, frozen=True):
    rule: Rule
    # (resource[.group], metric) -> source; external metrics have resource "".
    exposed: Mapping[tuple[str, str], MetricSource]
    lost: Mapping[str, LostSeries]  # by series name
    losses: Mapping[Stage, int]  # series names lost, also those not remembered
    shapes: int  # distinct series names and label sets seen
    shared: Mapping[str, set[str]] = {}  # by metric: its series, where the last of several is asked
    kinds: frozenset[str] = frozenset()  # resource[.group] of all that is exposed
    lost_as: Mapping[str, str] = {}  # name, of the metric or its own -> series name, of the lost
    crowded: tuple[str, ...] = ()  # series names of which not all label names were looked at
    names: SeriesNames | None = None  # of the answer, where all follows from these few
    nameless: tuple[str, ...] = ()  # the first series whose metrics' names would be too long

    @property
    def left_out(self) -> str:
        """What exposes nothing for the length of its name, for a person; "": all does."""
        names = ", ".join(name[:100] for name in self.nameless)
        return names and f"metrics with names above {LONGEST} characters are left out, of {names}"


class ListingBuilder:
    """Takes shapes one by one, so that a large list can be worked off in pages.

    Of several series with one name the lexicographically last is asked for, so that
    replicas and restarts agree (upstream takes the last that Prometheus happens to list).
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._is_external = rule.section == "externalRules"
        self._exposed: dict[tuple[str, str], MetricSource] = {}
        self._lost: dict[str, LostSeries] = {}
        self._losses: dict[Stage, int] = {}
        self._kinds: set[str] = set()
        self._readings: dict[frozenset[str], LabelReading] = {}
        self._nameless: list[str] = []
        self._series = ""
        self._metric: str | None = None
        self._source: MetricSource | None = None
        self._shapes = 0
        self._shared: dict[str, set[str]] = {}

    @property
    def metrics(self) -> int:
        """How many are exposed so far, each for every kind of object."""
        return len(self._exposed)

    def add(self, series: str, labels: frozenset[str]) -> None:
        """Take in one shape; shapes of one series should follow each other."""
        self._shapes += 1
        rule = self._rule
        if self._source is None or series != self._series:
            self._series, self._source = series, MetricSource(rule, series)
            is_kept = rule.keeps(series)
            self._metric = rule.namer.name(series) if is_kept else None
            if is_kept and self._metric is None and len(self._nameless) < _MOST_NAMELESS:
                self._nameless.append(series)
        metric = self._metric
        if metric is None:
            self._lose(series, Stage.FILTERED_OUT, labels)
            return
        if self._is_external:
            self._expose("", metric, self._source)
            return
        reading = self._readings.get(labels)
        if reading is None:
            reading = self._readings[labels] = rule.labels.read(labels)
        for resource in reading.resources:
            self._expose(resource.group_resource, metric, self._source)
        if not reading.resources:
            stage = Stage.LABEL_NOT_A_RESOURCE if reading.unresolved else Stage.NO_RESOURCE_LABEL
            self._lose(series, stage, labels, reading.unresolved)

    def build(self) -> RuleListing:
        # A series that one of its shapes exposes is not lost.
        for series in [name for name, lost in self._lost.items() if self._is_exposed(name, lost)]:
            self._losses[self._lost.pop(series).stage] -= 1
        lost_as: dict[str, str] = {}
        for series, lost in self._lost.items():
            # A filtered series may not match name.matches at all; then its own name counts.
            for name in (series if lost.name is None else lost.name, series):
                lost_as.setdefault(name, series)
        return RuleListing(
            self._rule,
            self._exposed,
            self._lost,
            self._losses,
            self._shapes,
            self._shared,
            frozenset(self._kinds),
            lost_as,
            nameless=tuple(self._nameless),
        )

    def _is_exposed(self, series: str, lost: LostSeries) -> bool:
        if lost.stage is Stage.FILTERED_OUT or lost.name is None:
            return False
        found = (self._exposed.get((kind, lost.name)) for kind in self._kinds)
        return any(source is not None and source.series == series for source in found)

    def _expose(self, resource: str, metric: str, source: MetricSource) -> None:
        known = self._exposed.get((resource, metric))
        if known and known.series != source.series and "Series" in self._rule.query.fields:
            self._shared.setdefault(metric, {known.series}).add(source.series)
        if known is None or source.series > known.series:
            self._exposed[resource, metric] = source
            self._kinds.add(resource)

    def _lose(
        self, series: str, stage: Stage, labels: frozenset[str], unresolved: tuple[str, ...] = ()
    ) -> None:
        if series not in self._lost:
            self._losses[stage] = self._losses.get(stage, 0) + 1
            if len(self._lost) < _REMEMBERED:
                name = self._rule.namer.name(series)
                self._lost[series] = LostSeries(stage, labels, unresolved, name)
