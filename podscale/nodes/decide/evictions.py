"""The smallest set of evictions that makes a resize fit on its node. Pure.

Amounts are thousandths of a resource's unit (1500 CPU is one core and a half), by resource.
"""

import bisect
from collections.abc import Mapping, Sequence

from msgspec import Struct

MOST_STEPS = 10_000  # of the search: up to 0.1 s


class EvictionCandidate(Struct, frozen=True):
    key: str  # namespace/name
    amounts: Mapping[str, int]  # what its node gets back
    priority: int = 0
    budgets: tuple[str, ...] = ()  # each eviction takes one of each


class EvictionSet(Struct, frozen=True):
    keys: tuple[str, ...]
    is_smallest: bool  # whether no fewer would do


def fewest_evictions(
    lacking: Mapping[str, int],
    candidates: Sequence[EvictionCandidate],
    budgets: Mapping[str, float],
    *,
    most_steps: int = MOST_STEPS,
) -> EvictionSet | None:
    """Return the fewest candidates that free what is lacking; None where all are not enough.

    ``budgets`` says how many may go of each; one that is not named refuses. Of sets of one size
    the one goes whose highest priority is lowest, then the one that frees least. A search that
    takes more than ``most_steps`` ends with the best set so far, which is at least as good as
    taking those that cover most of what lacks, one after the other.
    """
    search = _Search(lacking, candidates, budgets, most_steps)
    best = search.best()
    if best is None:
        return None
    keys = tuple(sorted(search.candidates[place].key for place in best))
    return EvictionSet(keys, search.steps < most_steps)


class _Search:
    """Branch and bound over the candidates, the largest first."""

    def __init__(
        self,
        lacking: Mapping[str, int],
        candidates: Sequence[EvictionCandidate],
        budgets: Mapping[str, float],
        most_steps: int,
    ) -> None:
        self._most_steps = most_steps
        wanted = {name: amount for name, amount in lacking.items() if amount > 0}
        self._lacking = tuple(wanted.values())
        shares = []
        for each in candidates:
            amounts = tuple(each.amounts.get(name, 0) for name in wanted)
            share = self._share(amounts, self._lacking)
            if share > 0 and all(budgets.get(name, 0) >= 1 for name in each.budgets):
                shares.append((share, each, amounts))
        shares.sort(key=lambda row: (-row[0], row[1].priority, row[1].budgets, row[1].key))
        self.candidates = [each for _, each, _ in shares]
        self._amounts = [amounts for _, _, amounts in shares]
        self._kinds = [(amounts, each.priority, each.budgets) for _, each, amounts in shares]
        self._left = dict(budgets)
        self.steps = 0
        self._best: tuple[int, ...] | None = None
        self._best_cost: tuple[float, ...] = (float("inf"),)
        self._chosen: list[int] = []
        # The largest amounts from each place on, summed: how many are needed at least.
        self._sums = [self._prefix_sums(place) for place in range(len(shares) + 1)]

    def best(self) -> tuple[int, ...] | None:
        """Return the places of the best candidates, or None."""
        start = self._greedy()
        if start is not None:
            self._best, self._best_cost = tuple(start), self._cost(start)
        self._look(0, self._lacking)
        return self._best

    def _greedy(self) -> list[int] | None:
        left, remaining = dict(self._left), self._lacking
        chosen: list[int] = []
        open_places = set(range(len(self.candidates)))
        while any(amount > 0 for amount in remaining):
            allowed = [
                place
                for place in open_places
                if all(left[name] >= 1 for name in self.candidates[place].budgets)
            ]
            place = max(
                allowed,
                key=lambda place: (
                    self._share(self._amounts[place], remaining),
                    -self.candidates[place].priority,
                    -place,
                ),
                default=None,
            )
            if place is None or not self._share(self._amounts[place], remaining):
                return None
            open_places.discard(place)
            chosen.append(place)
            remaining = self._less(remaining, place)
            for name in self.candidates[place].budgets:
                left[name] -= 1
        for place in sorted(chosen, key=lambda place: -self.candidates[place].priority):
            others = [other for other in chosen if other != place]
            if self._are_enough(others):
                chosen = others
        return chosen

    def _look(self, place: int, remaining: tuple[int, ...]) -> None:
        self.steps += 1
        if self.steps >= self._most_steps:
            return
        if all(amount <= 0 for amount in remaining):
            cost = self._cost(self._chosen)
            if cost < self._best_cost:
                self._best, self._best_cost = tuple(self._chosen), cost
            return
        needed = self._needed(place, remaining)
        if needed is None or len(self._chosen) + needed > self._best_cost[0]:
            return
        candidate = self.candidates[place]
        if all(self._left[name] >= 1 for name in candidate.budgets):
            for name in candidate.budgets:
                self._left[name] -= 1
            self._chosen.append(place)
            self._look(place + 1, self._less(remaining, place))
            self._chosen.pop()
            for name in candidate.budgets:
                self._left[name] += 1
        # Without this one, none that is like it would be any better.
        following = place + 1
        while following < len(self._kinds) and self._kinds[following] == self._kinds[place]:
            following += 1
        self._look(following, remaining)

    def _needed(self, place: int, remaining: tuple[int, ...]) -> int | None:
        # At least so many more; None where all that are left are not enough.
        most = 0
        for sums, lacks in zip(self._sums[place], remaining, strict=True):
            if sums[-1] < lacks:
                return None
            most = max(most, bisect.bisect_left(sums, lacks))
        return most

    def _prefix_sums(self, place: int) -> list[list[int]]:
        found = []
        for row in range(len(self._lacking)):
            sums = [0]
            for amount in sorted((each[row] for each in self._amounts[place:]), reverse=True):
                sums.append(sums[-1] + amount)
            found.append(sums)
        return found

    def _cost(self, places: Sequence[int]) -> tuple[float, ...]:
        priorities = sorted((self.candidates[place].priority for place in places), reverse=True)
        freed = sum(self._share(self._amounts[place], None) for place in places)
        return (len(places), *priorities, freed)

    def _share(self, amounts: tuple[int, ...], most: tuple[int, ...] | None) -> float:
        # Of what lacked at first; no more than ``most`` of each counts.
        counted = amounts if most is None else map(min, amounts, (max(each, 0) for each in most))
        return sum(amount / lacks for amount, lacks in zip(counted, self._lacking, strict=True))

    def _less(self, remaining: tuple[int, ...], place: int) -> tuple[int, ...]:
        pairs = zip(remaining, self._amounts[place], strict=True)
        return tuple(lacks - amount for lacks, amount in pairs)

    def _are_enough(self, places: Sequence[int]) -> bool:
        remaining = self._lacking
        for place in places:
            remaining = self._less(remaining, place)
        return all(amount <= 0 for amount in remaining)
