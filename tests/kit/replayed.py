"""Passes of a living HPA controller beside the replay of what each of them was told."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.simulate.loop import SimulatedRun, simulate
from hpa.simulate.workload import LoadHistory, Plant, key_of

NOT_DETERMINED = "not determined"


class LivePass(NamedTuple):
    """What one pass was told, and what there was then."""

    asked: float  # unix seconds
    load: float  # the whole of what was measured
    size: int  # which the pass before came to
    ready: int  # pods
    is_determined: bool = True  # that it heard what it was told, and so did all that it remembers


class Difference(NamedTuple):
    """A pass after which the replay has another size."""

    cause: str
    where: str


class ReplayedPasses:
    """The passes over one HPA, and the replay of them. ``plant.metric_age_s`` must be 0."""

    def __init__(
        self, name: str, hpa: HPA, passes: Sequence[LivePass], plant: Plant, settings: Settings
    ) -> None:
        self._name, self._hpa, self._passes = name, hpa, passes
        self._plant, self._settings = plant, settings
        # What the last pass came to nobody has seen.
        self.live = [each.size for each in passes[1:]]
        self.determined = sum(each.is_determined for each in passes[:-1])
        self.rescales = int(np.count_nonzero(np.diff([each.size for each in passes])))

    def differences(self) -> list[Difference]:
        """Return all passes after which the replay has another size."""
        times = [each.asked for each in self._passes]
        run = self._replay(times)
        sizes, found = run.replicas.tolist(), []
        for place, size in enumerate(self.live):
            if sizes[place] == size:
                continue
            one = self._passes[place]
            if not one.is_determined:
                cause = NOT_DETERMINED
            elif place and sizes[place - 1] != one.size:
                cause = "the pass before differs"
            elif self._is_late(times, place):
                cause = "decided late, on the edge of a window"
            elif sizes[place] >= one.size and run.ready[place] != one.ready:
                cause = "other pods were ready"
            else:
                cause = "not known"
            where = f"{self._name}, pass {place}: {one.size} to {size}, replayed {sizes[place]}"
            found.append(Difference(cause, where))
        return found

    def _is_late(self, times: Sequence[float], place: int) -> bool:
        """Return whether a pass that looks at its windows just before the next one asks comes to
        what there was."""
        late = [*times[:place], times[place + 1] - 1e-3, *times[place + 1 :]]
        return bool(self._replay(late).replicas[place] == self.live[place])

    def _replay(self, times: Sequence[float]) -> SimulatedRun:
        (metric,) = self._hpa.metrics
        column = np.array([each.load for each in self._passes])
        hidden = np.zeros(len(times), np.bool_)
        load = LoadHistory(np.array(times), {key_of(metric): column}, hidden)
        first = self._passes[0].size
        return simulate(self._hpa, load, self._plant, self._settings, first, load.time_s)


def share_alike(acting: str, found: Sequence[ReplayedPasses]) -> float:
    """Return the share of the determined passes that the replay follows; print the others."""
    apart = [difference for each in found for difference in each.differences()]
    causes = Counter(each.cause for each in apart)
    determined = sum(each.determined for each in found)
    share = 1.0 - (len(apart) - causes[NOT_DETERMINED]) / determined
    print(f"\n{acting}: {sum(len(each.live) for each in found)} passes of {len(found)} HPAs, "
          f"{sum(each.rescales for each in found)} rescales; of the {determined} passes that are "
          f"determined {share:.2%} are alike; different: {dict(causes)}")  # fmt: skip
    for each in sorted(apart, key=lambda each: each.cause == NOT_DETERMINED)[:40]:
        print(f"  {each.where}: {each.cause}")
    return share
