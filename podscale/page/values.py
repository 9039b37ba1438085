"""What the page is told: the values of its JSON API. Times are unix seconds, NaN goes as null."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

State = Literal["failing", "changing", "waiting", "steady"]
Direction = Literal["up", "down", "held", "failed"]
STATES: tuple[State, ...] = ("failing", "changing", "waiting", "steady")


class Spark(Struct, frozen=True, rename="camel"):
    """A few points for the line beside a name."""

    times: Sequence[float]
    load: Sequence[float]  # share of the target; empty: no HPA measures it
    replicas: Sequence[float]
    usage: Sequence[float] = ()  # share of the request, the larger of CPU and memory


class Row(Struct, frozen=True, rename="camel"):
    """One workload in the list."""

    id: str  # "NAMESPACE/KIND/NAME" of what is scaled
    hpa: str  # name of the autoscaler; empty: none
    others: Sequence[str]  # names of further autoscalers of the same object
    vpa: str
    state: State
    reason: str  # the token named first
    replicas: int | None
    wants: int | None  # what the metrics ask for, where that is another number
    least: int | None
    most: int | None
    metric: str
    unit: str
    load: float | None
    target_load: float | None
    spark: Spark


class ShownWaiting(Struct, frozen=True, rename="camel"):
    """One reason that holds workloads back, and some of them."""

    reason: str
    state: State
    count: int
    examples: Sequence[str]  # ids


class Recent(Struct, frozen=True, rename="camel"):
    """A size that changed lately."""

    id: str
    at: float
    title: str
    reason: str
    direction: Direction


class ShownListing(Struct, frozen=True, rename="camel"):
    """One page of the list."""

    now: float
    total: int
    matched: int
    offset: int
    rows: Sequence[Row]
    counts: dict[State, int]
    waiting: Sequence[ShownWaiting]
    recent: Sequence[Recent]  # the newest first
    is_leader: bool


class Scaling(Struct, frozen=True, rename="camel"):
    """The points of an HPA."""

    times: Sequence[float]
    load: Sequence[float]
    target: Sequence[float]
    replicas: Sequence[float]


class Sizing(Struct, frozen=True, rename="camel"):
    """The points of one resource, on average over the pods."""

    times: Sequence[float]
    usage: Sequence[float]
    request: Sequence[float]
    limit: Sequence[float]
    recommended: Sequence[float]


class ShownDecision(Struct, frozen=True, gc=False, rename="camel"):
    """One mark on the timeline."""

    key: str  # to ask for its trace
    at: float
    kind: Literal["scale", "size", "pod"]
    title: str  # "3 → 4 replicas"
    reason: str
    direction: Direction


class Detail(Struct, frozen=True, rename="camel"):
    """Everything about one workload."""

    now: float
    row: Row
    scaling: Scaling | None
    cpu: Sizing | None  # cores
    memory: Sizing | None  # bytes
    decisions: Sequence[ShownDecision]  # the newest first
    why: str  # the newest decision in one sentence
    change: str
    update_mode: str
    sizing_note: str  # why there is no usage to show; empty: there is


class ShownWords(Struct, frozen=True, rename="camel"):
    """One decision in words."""

    key: str
    at: float
    title: str
    reason: str
    also: Sequence[str]
    sentences: Sequence[str]
    change: str
    facts: dict[str, str | int | float | bool | None]


class RuleHealth(Struct, frozen=True, rename="camel"):
    """One rule of the adapter."""

    id: str
    metrics: int
    listed_s: float | None
    problem: str


class ShownHealth(Struct, frozen=True, rename="camel"):
    """How the feed does."""

    now: float
    source: str  # "feed" or "api": who is asked for metrics
    age_s: float | None  # mean age of what was served lately
    worst_age_s: float | None  # no sample of the last minute was older (a bucket's bound)
    queries_per_s: float | None
    failures_per_s: float | None
    reused: float | None  # share of demands that caused no query of their own
    rules: Sequence[RuleHealth]
    failing_rules: int
    outage: str = ""  # since when and why Prometheus does not answer
