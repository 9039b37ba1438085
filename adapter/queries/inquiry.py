"""One question on its way through the feed: what to ask, and what to make of the answer."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from podscale.core.metrics import Failure
from podscale.core.pace import LoopPace
from podscale.feed.plan import Demand, Outcome
from podscale.feed.source_routing import DemandReader

T_co = TypeVar("T_co", covariant=True)


class Inquiry(Struct, Generic[T_co], frozen=True):
    """Demands, and the function that reads their outcomes (in the same order)."""

    demands: tuple[Demand, ...]
    finish: Callable[[Sequence[Outcome]], T_co]


class LongInquiry(Struct, Generic[T_co], frozen=True):
    """As ``Inquiry``, where reading the outcomes takes more than one turn of the loop."""

    demands: tuple[Demand, ...]
    finish: Callable[[Sequence[Outcome]], Awaitable[T_co]]


class Inquiries(Generic[T_co]):
    """Inquiries asked together.

    Demands for the same plan and namespace become one for all their objects, so that
    thousands of questions are few demands.
    """

    def __init__(self, inquiries: Sequence[Inquiry[T_co] | LongInquiry[T_co] | Failure]) -> None:
        self._inquiries = inquiries
        merged: dict[tuple[object, str], list[Demand]] = {}
        for inquiry in inquiries:
            if isinstance(inquiry, Inquiry | LongInquiry):
                for demand in inquiry.demands:
                    merged.setdefault((demand.plan.key, demand.namespace), []).append(demand)
        self._keys = list(merged)
        self.demands = [_union(demands) for demands in merged.values()]

    async def answers(self, outcomes: Sequence[Outcome]) -> list[T_co | Failure]:
        """Return the answers of all inquiries; ``outcomes`` are those of ``demands``."""
        by_key = dict(zip(self._keys, outcomes, strict=True))
        answers: list[T_co | Failure] = []
        pace = LoopPace()
        for inquiry in self._inquiries:
            await pace.rest()
            if not isinstance(inquiry, Inquiry | LongInquiry):
                answers.append(inquiry)
                continue
            found = [by_key[d.plan.key, d.namespace] for d in inquiry.demands]
            if isinstance(inquiry, Inquiry):
                answers.append(inquiry.finish(found))
            else:
                answers.append(await inquiry.finish(found))
        return answers


async def ask(
    feed: DemandReader, inquiries: Sequence[Inquiry[T_co] | LongInquiry[T_co] | Failure]
) -> list[T_co | Failure]:
    """Return the answers of all inquiries with one read of the feed."""
    asked = Inquiries(inquiries)
    return await asked.answers(await feed.read(asked.demands))


def at_once(feed: DemandReader, inquiry: Inquiry[T_co] | Failure) -> T_co | None:
    """Return the answer if snapshots have it, or ``None``: ``ask`` then."""
    if not isinstance(inquiry, Inquiry):
        return None
    outcomes = []
    for demand in inquiry.demands:
        outcome = feed.at_once(demand)
        if outcome is None:
            return None
        outcomes.append(outcome)
    return inquiry.finish(outcomes)


def _union(demands: Sequence[Demand]) -> Demand:
    first = demands[0]
    if all(d.names == first.names for d in demands):
        return first
    names = sorted({name for demand in demands for name in demand.names})
    known = max((d.known for d in demands if d.known is not None), default=None)
    return Demand(first.plan, first.namespace, tuple(names), known)
