"""What is asked of Prometheus, plans and demands, and what the feed answers, readings.

The adapter makes one ``QueryPlan`` per (rule, series, resource, metric selector) and keeps it; a
``Demand`` is a plan for one namespace and some objects. A ``Reading`` is immutable, shared by all
who asked: an unchanged snapshot is the same object.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.goquote import quote
from podscale.core.metrics import Failure

NO_ROW = -1


class Reading(Struct, frozen=True, eq=False, weakref=True):
    """The samples of one plan in one namespace, one per row, in Prometheus's order.

    Values are Prometheus's floats (NaN and infinities included: who turns them into
    quantities must refuse those). ``time_s`` is each sample's own time, NaN where it is
    not known, which may be all. Rows that are stale are not among the rows.
    """

    asked_s: float  # evaluation time of the query
    values: NDArray[np.float64]
    time_s: NDArray[np.float64]
    objects: Mapping[str, int]  # object -> its row; upstream's choice among duplicates
    containers: Mapping[tuple[str, str], int]  # (object, container) -> row; container plans only
    labels: Sequence[Mapping[str, str]]  # one per row; external plans only
    is_scalar: bool = False  # external: a scalar answer, upstream serves it with null labels
    stale: Mapping[str, float] = {}  # object -> age in seconds (inf: gone); "" for external rows
    nameless: int = 0  # rows without the object label, which are nobody's
    # True: other objects' rows come from a wider query; the request's own would not have them.
    is_by_name: bool = False

    def row(self, name: str) -> int:
        """Return the row of an object, or ``NO_ROW``."""
        return self.objects.get(name, NO_ROW)


Outcome = Reading | Failure


Api = Literal["custom", "external", "container", "node"]

# Takes `.LabelMatchers` and the request's part of `.LabelValuesByName` (label -> value, several
# names joined with "|"); returns the PromQL. The caller has bound everything else of the rule
# (series, selector values, GroupBy). Raises ValueError for a template that cannot be executed.
Render = Callable[[str, Mapping[str, str]], str]

# Returns a query that reads one namespace only; raises ValueError (``prover.confinement``).
Confine = Callable[[str], str]


class KeyLabels(Struct, frozen=True):
    """The Prometheus labels that say whose sample a series is; "" where there is none."""

    namespace: str = ""  # "" for nodes, volumes, Namespace objects and unscoped external rules
    object: str = ""  # "" for external metrics; for Namespace objects their namespace label
    container: str = ""  # container metrics only

    def key(self) -> tuple[str, ...]:
        """Return the labels that a request's matchers bind, namespace first (K of the proof)."""
        return tuple(label for label in (self.namespace, self.object) if label)


class QueryPlan(Struct, frozen=True, eq=False, weakref=True):
    """One metric of one rule. Two plans with the same ``key`` must render the same texts."""

    api: Api
    rule: str  # identifies the rule and its text: a changed rule needs another value
    series: str
    labels: KeyLabels
    render: Render
    matchers: tuple[str, ...] = ()  # rendered matchers of the metric selector, in order
    is_namespace_object: bool = False  # objects are Namespaces: always read by name
    source: str = ""  # the named Prometheus that its rule chose; "": by namespace, else the default
    confine: Confine | None = None  # of a namespace's own rule, which may read nothing else

    @property
    def key(self) -> tuple[str, str, str, KeyLabels, tuple[str, ...]]:
        """Return what tells plans apart."""
        return (self.api, self.rule, self.series, self.labels, self.matchers)

    def label_matchers(self, namespace: str, names: Sequence[str]) -> str:
        """Return ``.LabelMatchers``: of the selector, then the namespace, then the object."""
        found = list(self.matchers)
        if self.labels.namespace:
            found.append(f"{self.labels.namespace}={quote(namespace)}")
        if self.labels.object:
            form = "=~" if len(names) > 1 else "="
            found.append(f"{self.labels.object}{form}{quote('|'.join(names))}")
        return ",".join(found)

    def text(self, namespace: str, names: Sequence[str]) -> str:
        """Return the query for these objects: as upstream renders it, and confined.

        Raises ValueError where the template cannot be executed, or its query not be confined.
        """
        text = self.rendered(namespace, names)
        return text if self.confine is None else self.confine(text)

    def rendered(self, namespace: str, names: Sequence[str]) -> str:
        """Return the query exactly as upstream renders it; raises ValueError as ``text``."""
        values = {}
        if self.labels.namespace:
            values[self.labels.namespace] = namespace
        if self.labels.object:
            values[self.labels.object] = "|".join(names)
        return self.render(self.label_matchers(namespace, names), values)


class Demand(Struct, frozen=True, eq=False, gc=False):
    """A plan wanted for one namespace and its objects."""

    plan: QueryPlan
    namespace: str = ""  # "" where the plan has no namespace label
    names: tuple[str, ...] = ()  # objects wanted, sorted; empty for external metrics
    known: int | None = None  # objects of the kind that exist in the namespace, if known
    asker: str = ""  # the namespace that wants to know, where ``namespace`` does not say it
