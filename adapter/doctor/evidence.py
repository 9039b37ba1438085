"""What the doctor needs to know of the outside, as values.

The doctor is a generator: it yields one ``Need`` at a time and is sent the answer, so the
same diagnosis runs against a living cluster, a recording in a bug report, or a test.
"""

import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from podscale.kube.client.resource import Resource


class SeriesOf(Struct, frozen=True, tag=True):
    """The label sets that ``match[]`` finds."""

    match: str
    within_window: bool = True  # False: over all time, to see whether the window is too short
    # Values matter too, of the series of this name, those with one of ``wanted`` in ``label``
    # among them if there are any. A recording that holds whole label sets needs none of it.
    name: str = ""
    label: str = ""
    wanted: tuple[str, ...] = ()


class ResultOf(Struct, frozen=True, tag=True):
    """The answer of an instant query."""

    promql: str


Need = SeriesOf | ResultOf


class Series(Struct, frozen=True, tag=True):
    """Label sets, ``__name__`` included."""

    labels: Sequence[Mapping[str, str]]


class Point(Struct, frozen=True):
    """One sample of a result."""

    labels: Mapping[str, str]
    value: float | Literal["nan", "inf", "-inf"]  # JSON has no number for these
    age_s: float | None = None  # None: not known

    @classmethod
    def of(cls, labels: Mapping[str, str], number: float, age_s: float | None) -> "Point":
        """Return the sample, in a form that a recording can hold."""
        if math.isfinite(number):
            return cls(labels, number, age_s)
        return cls(labels, "nan" if math.isnan(number) else "inf" if number > 0 else "-inf", age_s)

    @property
    def number(self) -> float:
        """The value as it was measured."""
        return float(self.value)


class Result(Struct, frozen=True, tag=True):
    """The samples of an instant query."""

    points: Sequence[Point]


class Rejected(Struct, frozen=True, tag=True):
    """Prometheus answered, and refuses this request (400), or gave it up (422)."""

    status: int
    error: str


class Unreachable(Struct, frozen=True, tag=True):
    """Prometheus did not answer, or something that is not Prometheus did."""

    error: str


Given = Series | Result | Rejected | Unreachable

T = TypeVar("T")
Way = Generator[Need, Given, T]  # asks one need at a time, is sent the answer, and returns


async def drive(way: Way[T], answer: Callable[[Need], Awaitable[Given]]) -> T:
    """Return what ``way`` comes to, with every need answered by ``answer``."""
    try:
        need = next(way)
        while True:
            need = way.send(await answer(need))
    except StopIteration as end:
        found: T = end.value
        return found


class AskedEvidence(Struct, frozen=True):
    """The metric that somebody misses."""

    api: str  # "custom" | "external"; "resource": of the doctor's command only
    metric: str
    namespace: str = ""
    resource: str = ""  # custom: plural[.group], or "namespaces"
    name: str = ""  # "*": all objects that the selector means
    selector: str = ""
    metric_selector: str = ""
    container: str = ""  # resource: the one whose usage is meant; "": all of a pod


class Access(Struct, frozen=True):
    """The answer of a SubjectAccessReview for the reader."""

    user: str
    allowed: bool
    reason: str = ""


class Surroundings(Struct, frozen=True):
    """Everything that is known before the first question."""

    prometheus_url: str
    prometheus_error: str | None = None  # every request fails with this text
    scrape_interval_s: float | None = None
    relist_interval_s: float = 600.0
    sample_max_age_s: float = 300.0
    resources: Sequence[Resource] = ()
    objects: Sequence[str] = ()  # names that the request means
    young: Sequence[str] = ()  # those so new that they may not have been scraped yet
    apiservices: Mapping[str, str] = {}  # v1beta1.custom.metrics.k8s.io -> namespace/service
    self_service: str = ""  # "": not known, then APIServices are not judged
    access: Access | None = None
