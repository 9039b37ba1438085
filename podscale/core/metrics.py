"""Questions about metrics and their answers: the words adapter, HPA and VPA share.

A ``MetricsProvider`` is asked in batches and answers in the same order. Values are
milli-units (``1500`` is 1.5) as on the wire of the metrics APIs; times are unix
seconds. A failure is a value of the closed set ``Failure``, never an exception and
never the number 0.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NO_BUDGET = "NoBudget"  # reason of ``Unavailable``: the source was not asked
CLUSTER_APIS = "the cluster's metrics API"  # ``answered_by`` of what no rule of this process covers


class PodResource(Struct, frozen=True, gc=False, tag=True):
    """Usage of ``cpu`` or ``memory`` by the pods that ``selector`` matches."""

    namespace: str
    selector: str  # canonical label selector; "" selects every pod
    resource: str  # "cpu" | "memory"
    container: str | None = None  # None: the sum over the pod's containers


class PodMetric(Struct, frozen=True, gc=False, tag=True):
    """One custom metric over the pods that ``selector`` matches."""

    namespace: str
    metric: str
    selector: str  # canonical label selector of the pods; "" selects every pod
    metric_selector: str = ""  # canonical label selector of the series


class ObjectMetric(Struct, frozen=True, gc=False, tag=True):
    """One custom metric of one object; ``resource`` is ``plural[.group]``."""

    namespace: str  # "" for an object without namespace
    resource: str  # "namespaces" for a Namespace; then ``name`` == its name
    name: str
    metric: str
    metric_selector: str = ""


class ExternalMetric(Struct, frozen=True, gc=False, tag=True):
    """The values of one external metric as seen from ``namespace``."""

    namespace: str
    metric: str
    metric_selector: str = ""


class ContainerUsage(Struct, frozen=True, gc=False, tag=True):
    """CPU and memory of all containers of ``namespaces``; none named: of the cluster."""

    namespaces: tuple[str, ...] = ()


class NodeUsage(Struct, frozen=True, gc=False, tag=True):
    """CPU and memory of the nodes called ``names``."""

    names: tuple[str, ...]


Question = PodResource | PodMetric | ObjectMetric | ExternalMetric | ContainerUsage | NodeUsage


class Sample(Struct, frozen=True, gc=False):
    """One measured value."""

    value_milli: int
    time_s: float | None = None  # when it was scraped; None: not known (then see ``asked_s``)
    window_s: float | None = None  # width of the rate window behind it; None: not known


class SampleGap(Struct, frozen=True, gc=False):
    """The source was away, and a window of the query reaches back into that time: a rate over it
    reads low. Times are unix seconds.
    """

    since_s: float
    until_s: float
    window_s: float  # how far back from its end the window reaches
    whole_s: float  # from when on no window of the query reaches into that time
    source: str = "Prometheus"  # or ``CLUSTER_APIS``


class PodSamples(Struct, frozen=True, gc=False, tag=True):
    """Samples by pod name. A pod without a sample is absent, a stale one is in ``stale``."""

    pods: Mapping[str, Sample]
    asked_s: float  # evaluation time of the query
    stale: frozenset[str] = frozenset()  # pods with a value too old or gone, never in ``pods``
    gap: SampleGap | None = None  # None: of none is known
    answered_by: str = ""  # as of ``ExternalSamples``


class ObjectSample(Struct, frozen=True, gc=False, tag=True):
    sample: Sample
    asked_s: float
    gap: SampleGap | None = None
    answered_by: str = ""  # as of ``ExternalSamples``


class ExternalSample(Struct, frozen=True, gc=False):
    labels: Mapping[str, str]
    sample: Sample


class ExternalSamples(Struct, frozen=True, gc=False, tag=True):
    """All series of an external metric, in Prometheus's order."""

    series: Sequence[ExternalSample]
    asked_s: float
    left_out: int = 0  # series that are no numbers: the sum of ``series`` is then not the metric
    answered_by: str = ""  # the external backend, or ``CLUSTER_APIS``; "": the source itself
    gap: SampleGap | None = None


class ContainerColumns(Struct, frozen=True, tag=True):
    """Usage of many containers: five columns of one length, plus the time asked.

    A container that lacks a resource has NaN there; ``time_s`` is NaN where the
    sample's own time is not known.
    """

    namespace: Sequence[str]
    pod: Sequence[str]
    container: Sequence[str]
    cpu_cores: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    time_s: NDArray[np.float64]
    asked_s: float


class NodeUsageColumns(Struct, frozen=True, tag=True):
    """Usage of nodes, one row for each name of the question, in its order.

    NaN: not measured, or no amount (negative, infinite); ``time_s`` NaN: not known.
    """

    cpu_cores: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    time_s: NDArray[np.float64]
    asked_s: float


class NotFound(Struct, frozen=True, tag=True):
    """No rule, series or object of that name is known."""

    reason: str  # stable CamelCase token (stages of cases/doctor.yaml where one fits)
    message: str  # says what to do, for a person


class NoData(Struct, frozen=True, tag=True):
    """The metric is known and the query worked, but there is no sample."""

    reason: str
    message: str


class Stale(Struct, frozen=True, tag=True):
    """There is a value, older than the limit or of a target that has gone."""

    reason: str
    message: str
    age_s: float | None = None


class Unavailable(Struct, frozen=True, tag=True):
    """The source could not answer: down, hanging, refusing, speaking nonsense."""

    reason: str
    message: str
    is_timeout: bool = False  # served as 504 instead of 503
    retry_after_s: float | None = None
    since_s: float | None = None  # unix seconds: the source has answered nothing since then
    rule: str = ""  # that is not listed for this reason, and that the metric may be of


class Refused(Struct, frozen=True, tag=True):
    """The source understood and will not: forbidden, or a query it rejects."""

    reason: str
    message: str


Samples = PodSamples | ObjectSample | ExternalSamples
Failure = NotFound | NoData | Stale | Unavailable | Refused
Answer = Samples | ContainerColumns | NodeUsageColumns | Failure


def samples_of(answer: Samples) -> list[Sample]:
    """Return all samples of an answer."""
    match answer:
        case PodSamples(pods=pods):
            return list(pods.values())
        case ExternalSamples(series=series):
            return [each.sample for each in series]
    return [answer.sample]


class MetricsProvider(Protocol):
    """A source of metrics. Registered under the entry-point group
    ``podscale.metrics_providers`` it is served by the same APIs as Prometheus.
    """

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer per question, in order. Never raises for a failed source."""
