"""What the doctor needs to know of the outside, and what it finds, as values. Pure.

The doctor is a generator: it yields one ``Need`` at a time and is sent the answer, so the
same diagnosis runs against a living cluster, a recording in a bug report, or a test. What is wrong
with a rule by its list of series has the same words in the doctor's report, in what a running
adapter tells, and in the status of a MetricRule.
"""

import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from adapter.discovery.listing import RuleListing
from adapter.discovery.registry import RuleState
from adapter.rules.ruleset import Rule
from adapter.stages import Finding, Stage
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
        return float(self.value)


class Result(Struct, frozen=True, tag=True):
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


class LintFinding(Struct, frozen=True):
    """One thing that works and will surprise somebody."""

    lint: str
    subject: str  # "rules[3]", "hpa/web"
    reason: str
    place: str = ""  # file:line:column, where a file is to blame
    need: Need | None = None  # what would tell whether it is so; None: nothing has to be asked

    @property
    def is_hint(self) -> bool:
        """Whether it only costs, or nobody was asked, as of prometheus-adapter's default rules."""
        is_open = self.need and self.lint in ("CountedTwice", "DurationArithmetic")
        return self.lint == "UnboundedSeries" or bool(is_open)

    @property
    def text(self) -> str:
        """One line, as compilers print it."""
        return f"{self.place or self.subject}: {self.lint}: {self.reason}"


class Diagnosis(Struct, frozen=True):
    """The stage that is named, where it lies, what was seen and what to change."""

    stage: Stage
    seen: str
    change: str
    section: str = ""  # "rules" | "externalRules"; "": no rule is to blame
    rule: int | None = None
    place: str = ""  # file:line:column of the rule, or the object that it is written in
    promql: str = ""  # as rendered, if the way got so far
    beside: tuple[LintFinding, ...] = ()  # what does not stop a metric that is served

    def of(self, rule: Rule, promql: str = "") -> "Diagnosis":
        """Return the same as what is to blame on ``rule``."""
        index = None if rule.origin else rule.index
        return replace(self, section=rule.section, rule=index, place=rule.origin, promql=promql)


def problem_of(listing: RuleListing) -> Finding | None:
    """Return at which stage a rule loses all its series, and why; ``None``: it exposes some."""
    if listing.exposed:
        return None
    if not listing.shapes:
        return Finding(Stage.NO_SERIES, "seriesQuery finds nothing within the discovery window")
    filtered = listing.losses.get(Stage.FILTERED_OUT, 0)
    if filtered == sum(listing.losses.values()):
        names = "series name" if filtered == 1 else "series names"
        text = f"{filtered} {names} found, and none passes seriesFilters and matches"
        return Finding(Stage.FILTERED_OUT, listing.left_out or text)
    return Finding(Stage.NO_RESOURCE_LABEL, "no label of the series maps to a resource")


def problem_of_state(state: RuleState) -> Finding | None:
    """Return what is wrong with a rule that was listed, or has failed to be."""
    if state.failure is not None:
        return Finding(state.failure.stage, state.failure.message)
    return None if state.listing is None else problem_of(state.listing)
