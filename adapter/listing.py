"""From the series of one rule to the metrics it exposes.

Pure. Values of labels never matter here, only their names: a series is its name and its
set of label names (its shape), which keeps a relist of 500,000 series small.
"""

from collections.abc import Mapping

from msgspec import Struct

from adapter.labels import Reading
from adapter.rules import Rule
from adapter.stages import Stage

# Lost series are remembered to explain a 404; a rule that loses more is explained by example.
_REMEMBERED = 2_000


class Source(Struct, frozen=True):
    """Where a metric comes from."""

    rule: Rule
    series: str


class Lost(Struct, frozen=True):
    """A series that exposes nothing, and why."""

    stage: Stage
    labels: frozenset[str]  # what it carries
    unresolved: tuple[str, ...] = ()  # labels that fit the template but name no resource


class Listing(Struct, frozen=True):
    """What one rule exposes."""

    rule: Rule
    # (resource[.group], metric) -> source; external metrics have resource "".
    exposed: Mapping[tuple[str, str], Source]
    lost: Mapping[str, Lost]  # by series name
    losses: Mapping[Stage, int]  # series names lost, also those not remembered
    shapes: int  # distinct series names and label sets seen
    conflicts: int = 0  # times a series of this rule met a name already taken
    crowded: tuple[str, ...] = ()  # series names of which not all label names were looked at


class ListingBuilder:
    """Takes shapes one by one, so that a large list can be worked off in pages.

    Of several series with one name the lexicographically last is asked for, so that
    replicas and restarts agree (upstream takes the last that Prometheus happens to list).
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._is_external = rule.section == "externalRules"
        self._exposed: dict[tuple[str, str], Source] = {}
        self._lost: dict[str, Lost] = {}
        self._losses: dict[Stage, int] = {}
        self._readings: dict[frozenset[str], Reading] = {}
        self._series = ""
        self._metric: str | None = None
        self._source: Source | None = None
        self._shapes = self._conflicts = 0
        self.labels_read = 0  # what the work grows with, besides the shapes

    def add(self, series: str, labels: frozenset[str]) -> None:
        """Take in one shape; shapes of one series should follow each other."""
        self._shapes += 1
        rule = self._rule
        if self._source is None or series != self._series:
            self._series, self._source = series, Source(rule, series)
            self._metric = rule.namer.name(series) if rule.keeps(series) else None
        metric = self._metric
        if metric is None:
            self._lose(series, Lost(Stage.FILTERED_OUT, labels))
            return
        if self._is_external:
            self._expose("", metric, self._source)
            return
        reading = self._readings.get(labels)
        if reading is None:
            reading = self._readings[labels] = rule.labels.read(labels)
            self.labels_read += len(labels)
        for resource in reading.resources:
            self._expose(resource.group_resource, metric, self._source)
        if not reading.resources:
            stage = Stage.LABEL_NOT_A_RESOURCE if reading.unresolved else Stage.NO_RESOURCE_LABEL
            self._lose(series, Lost(stage, labels, reading.unresolved))

    def build(self) -> Listing:
        """Return what has been taken in."""
        # A series that one of its shapes exposes is not lost.
        for series in {s.series for s in self._exposed.values()} & self._lost.keys():
            self._losses[self._lost.pop(series).stage] -= 1
        return Listing(
            self._rule, self._exposed, self._lost, self._losses, self._shapes, self._conflicts
        )

    def _expose(self, resource: str, metric: str, source: Source) -> None:
        known = self._exposed.get((resource, metric))
        if known is not None and known.series != source.series:
            self._conflicts += 1
        if known is None or source.series > known.series:
            self._exposed[resource, metric] = source

    def _lose(self, series: str, lost: Lost) -> None:
        if series not in self._lost:
            self._losses[lost.stage] = self._losses.get(lost.stage, 0) + 1
            if len(self._lost) < _REMEMBERED:
                self._lost[series] = lost
