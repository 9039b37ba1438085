"""The resource rules as range queries: the usage of all containers, over time.

Several namespaces share a query only where the prover says that this is the same; in any
other case each namespace has its own. Pure.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import ResourceRule, ResourceRules
from podscale.core.goquote import quote
from podscale.feed.plan import QueryPlan
from podscale.feed.prover.proof import prove
from podscale.feed.prover.verdict import Widened

_NAMESPACES = 100  # that one query names, as the feed's batches


class ContainerQuery(Struct, frozen=True):
    """A query and the labels that name the container of a series."""

    text: str
    pod: str
    container: str
    namespace: str  # "" where all series are of ``only``
    only: str = ""


class PastQueries(Struct, frozen=True):
    """What to ask for each resource."""

    cpu: tuple[ContainerQuery, ...]
    memory: tuple[ContainerQuery, ...]


def past_queries(rules: ResourceRules | None, namespaces: Sequence[str]) -> PastQueries:
    """Return the queries; raises ``ValueError`` where the rules cannot ask for usage."""
    if rules is None:
        raise ValueError("the rules file has no resourceRules: no history of CPU and memory")
    return PastQueries(
        tuple(_queries(rules.cpu, namespaces)), tuple(_queries(rules.memory, namespaces))
    )


def _queries(rule: ResourceRule, namespaces: Sequence[str]) -> Iterator[ContainerQuery]:
    try:
        plan = Plans().containers(rule)
    except RuleQueryError as error:
        raise ValueError(f"{rule.id}: {error}") from error
    labels = plan.labels
    verdict = prove(plan)
    if isinstance(verdict, Widened) and verdict.default is None:
        for start in range(0, len(namespaces), _NAMESPACES):
            text = verdict.text(tuple(namespaces[start : start + _NAMESPACES]))
            yield ContainerQuery(text, labels.object, labels.container, labels.namespace)
        return
    for namespace in namespaces:
        text = plan.render(_every_pod(plan, namespace), {labels.namespace: namespace})
        yield ContainerQuery(text, labels.object, labels.container, "", namespace)


def _every_pod(plan: QueryPlan, namespace: str) -> str:
    labels = plan.labels
    return f'{labels.namespace}={quote(namespace)},{labels.object}=~".+"'
