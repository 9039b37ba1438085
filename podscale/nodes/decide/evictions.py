"""The fewest evictions that make a resize fit on its node. Pure.

Amounts are thousandths of a resource's unit (1500 CPU is one core and a half), by resource.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, islice

from msgspec import Struct

MOST_SETS = 10_000  # that are looked at: up to 0.1 s


class EvictionCandidate(Struct, frozen=True):
    key: str  # namespace/name
    amounts: Mapping[str, int]  # what its node gets back
    priority: int = 0
    budgets: tuple[str, ...] = ()  # each eviction takes one of each


_Set = tuple[EvictionCandidate, ...]


def fewest_evictions(
    lacking: Mapping[str, int],
    candidates: Sequence[EvictionCandidate],
    budgets: Mapping[str, float],
    *,
    most_sets: int = MOST_SETS,
) -> _Set | None:
    """Return the fewest candidates that free what is lacking; None where none were found to do.

    ``budgets`` says how many may go of each; one that is not named refuses. Of sets of one size
    the one goes whose highest priority is lowest, then the one that frees least. Where these are
    more than ``most_sets``, those go that cover most of what lacks, one after the other.
    """
    lacking = {name: amount for name, amount in lacking.items() if amount > 0}
    useful = [each for each in candidates if _share(each, lacking, lacking)
              and all(budgets.get(name, 0) >= 1 for name in each.budgets)]  # fmt: skip
    best = _largest_first(lacking, useful, budgets)
    most, left = len(useful) if best is None else len(best), most_sets
    for size in range(most + 1):
        sets = islice(combinations(useful, size), left)
        found = [each for each in sets if _is_enough(each, lacking, budgets)]
        if found:
            return min([*found, *filter(None, [best])], key=lambda each: _cost(each, lacking))
        left = max(left - math.comb(len(useful), size), 0)
    return best


def _largest_first(
    lacking: Mapping[str, int], useful: Sequence[EvictionCandidate], budgets: Mapping[str, float]
) -> _Set | None:
    chosen: list[EvictionCandidate] = []
    remaining, left = dict(lacking), dict(budgets)
    while any(amount > 0 for amount in remaining.values()):
        allowed = [each for each in useful if each not in chosen
                   and all(left[name] >= 1 for name in each.budgets)]  # fmt: skip
        shares = [(_share(each, remaining, lacking), -each.priority) for each in allowed]
        if not allowed or not max(shares)[0]:
            return None
        largest = allowed[shares.index(max(shares))]
        chosen.append(largest)
        remaining = {name: amount - largest.amounts.get(name, 0)
                     for name, amount in remaining.items()}  # fmt: skip
        for name in largest.budgets:
            left[name] -= 1
    for each in sorted(chosen, key=lambda each: -each.priority):
        others = tuple(other for other in chosen if other is not each)
        if _is_enough(others, lacking, budgets):
            chosen.remove(each)
    return tuple(chosen)


def _is_enough(chosen: _Set, lacking: Mapping[str, int], budgets: Mapping[str, float]) -> bool:
    return all(
        sum(each.amounts.get(name, 0) for each in chosen) >= amount
        for name, amount in lacking.items()
    ) and all(
        count <= budgets[name]
        for name, count in Counter(name for each in chosen for name in each.budgets).items()
    )


def _cost(chosen: _Set, lacking: Mapping[str, int]) -> tuple[float, ...]:
    priorities = sorted((each.priority for each in chosen), reverse=True)
    freed = sum(each.amounts.get(name, 0) / amount
                for each in chosen for name, amount in lacking.items())  # fmt: skip
    return (len(chosen), *priorities, freed)


def _share(
    one: EvictionCandidate, remaining: Mapping[str, int], lacking: Mapping[str, int]
) -> float:
    # Of what lacks, as far as it still does.
    return sum(min(one.amounts.get(name, 0), max(remaining[name], 0)) / amount
               for name, amount in lacking.items())  # fmt: skip
