"""The HorizontalPodAutoscaler as the decision reads it: defaulted, numbers in milli-units.

``hpa.decide.api.reading`` makes these from any served version of the object; everything
behind it sees one form only. Times are unix seconds.
"""

from typing import Literal

from msgspec import Struct

from podscale.kube.client.wire import LabelSelector
from podscale.kube.objects import autoscaler

# gc=False here and in the modules beside it: values built bottom-up from values cannot form
# a cycle, and the collector's share of a pass over 10,000 objects is larger than ours.

# Of a stabilization window and of a policy: the API server refuses more, our own CRD does not.
LONGEST_WINDOW_S, LONGEST_POLICY_S = 3600, 1800
MOST_METRICS_TOGETHER = 100  # of one autoscaler; with more it is read apart from the others


class MetricStatus(Struct, frozen=True, gc=False):
    """One entry of ``status.currentMetrics``; a failed metric has the empty type."""

    type: str = ""
    name: str = ""  # of the metric, or of the resource
    container: str = ""
    described: autoscaler.CrossVersionObjectReference | None = None
    selector: LabelSelector | None = None
    value_milli: int | None = None
    average_value_milli: int | None = None
    average_utilization: int | None = None  # percent of the request


class MetricSpec(MetricStatus, frozen=True, gc=False):
    """One entry of ``spec.metrics``, its target's values in place of current ones; a source of an
    unknown type keeps only ``type``."""

    target_type: str = ""  # Utilization | Value | AverageValue

    @property
    def is_by_value(self) -> bool:
        """Whether the whole of an Object or External metric is compared, not a pod's share: of the
        one its target's type says so, of the other that there is no average."""
        if self.type == "Object":
            return self.target_type == "Value"
        return self.type == "External" and self.average_value_milli is None


class Rules(Struct, frozen=True, gc=False):
    """``behavior.scaleUp`` or ``scaleDown`` after defaulting."""

    window_s: int | None  # None (scaleDown only): the controller's flag
    select: str  # Max, Min or Disabled; text because it comes from outside
    policies: tuple[autoscaler.Policy, ...]
    tolerance: float | None = None  # None: the controller's flag


class Behavior(Struct, frozen=True, gc=False):
    """Both directions; present means the behavior path even where nothing was written."""

    up: Rules
    down: Rules


class Fallback(Struct, frozen=True, gc=False):
    """What stands in for a metric that cannot be read (``podscale.io/fallback``)."""

    kind: Literal["hold", "last", "replicas"]
    replicas: int = 0  # kind replicas
    max_age_s: float = 0.0  # kind last: how old the last good proposal may be


class MinimumSchedule(Struct, frozen=True, gc=False):
    """One entry of ``podscale.io/schedule``, whose words can be read."""

    start: str  # as written: cron of five fields, or RFC 3339
    end: str
    zone: str
    min_replicas: int
    ramp_s: float = 0.0
    start_s: float | None = None  # None: cron
    end_s: float | None = None


class Options(Struct, frozen=True, gc=False):
    """The ``podscale.io/`` annotations of one object."""

    is_paused: bool = False
    sync_period_s: float | None = None
    fallbacks: tuple[tuple[str, Fallback], ...] = ()  # sorted by metric name
    may_lower: bool = False
    pods_by_owner: bool = False
    coordinates: bool | None = None  # with a VPA; None: as --coordinate says
    schedules: tuple[MinimumSchedule, ...] = ()
    refused_schedule: str = ""  # why one that is written is not among them
    forecasts: bool = False  # where replaying its past shows that it pays
    problems: tuple[str, ...] = ()  # annotations that could not be read, for a person


class HpaStatus(Struct, frozen=True, gc=False):
    """The whole of ``status``, as it is rebuilt in every pass."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_s: float | None = None
    metrics: tuple[MetricStatus, ...] = ()
    conditions: tuple[autoscaler.AutoscalerCondition, ...] = ()  # in order of first appearance
    observed_generation: int | None = None


class HPA(Struct, frozen=True, gc=False):
    """One object, read and defaulted once per change, decided on in every pass."""

    namespace: str
    name: str
    target: autoscaler.CrossVersionObjectReference
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    min_replicas: int = 1
    behavior: Behavior | None = None
    status: HpaStatus = HpaStatus()
    generation: int | None = None
    options: Options = Options()
    # UnknownField, TwoSyncPeriods: what of ``spec`` does not count here, and why, for a person
    remarks: tuple[tuple[str, str], ...] = ()

    @property
    def is_read_apart(self) -> bool:
        """Whether its metrics are too many to be read together with those of others."""
        return len(self.metrics) > MOST_METRICS_TOGETHER
