"""Autopilot's learning recommender: the cheapest of many simple models.

A model has a decay and a margin. At every tick it picks the limit that would have cost
least: overruns, underruns, and the change itself cost something. The ensemble follows the
model that has cost least so far, and changes it reluctantly. Nothing is trained; why a
model leads can be read from two numbers.
"""

import numpy as np
from msgspec import Struct

from vpa.model.autopilot.signal import Tick
from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats


class Model(Struct, frozen=True):
    decay: float  # weight of the newest tick, 0..1
    margin_buckets: int  # added to the limit: one bucket is 5 %


class Costs(Struct, frozen=True):
    """Hyper-parameters: what each kind of mistake costs. Tuned offline in the paper."""

    decay: float = 0.02  # of a model's own cost
    overrun: float = 10.0
    underrun: float = 0.5
    limit_change: float = 0.02
    model_change: float = 0.02


# Ticks of five minutes: from half an hour to two days of memory.
DEFAULT_MODELS = tuple(
    Model(decay, margin) for decay in (0.11, 0.0285, 0.0048, 0.0012) for margin in (1, 2, 4)
)


class Ensemble(ColumnArrays):
    """The models of one resource over all slots."""

    # Smoothed usage per decay; overrun and underrun of any limit are sums over it.
    _usage: Floats  # (decays, buckets, slots)
    _raw: Columns  # (decays, slots)
    _limit: Columns  # (models, slots)
    _cost: Floats
    _model: Columns
    _final: Columns

    def __init__(
        self,
        layout: BucketLayout,
        slots: int,
        models: tuple[Model, ...] = DEFAULT_MODELS,
        costs: Costs = Costs(),  # noqa: B008 - frozen
    ) -> None:
        self.layout, self.models, self.costs = layout, models, costs
        self._decays = sorted({model.decay for model in models}, reverse=True)
        super().__init__(
            slots,
            _usage=np.zeros((len(self._decays), layout.count, 1)),
            _raw=np.full((len(self._decays), 1), -1, dtype=np.intp),
            _limit=np.full((len(models), 1), -1, dtype=np.intp),
            _cost=np.zeros((len(models), 1)),
            _model=np.intp(0),
            _final=np.intp(-1),
        )

    def observe(self, tick: Tick) -> None:
        """Take in one tick and decide anew for the slots that it has seen."""
        seen = np.flatnonzero(tick.seen)
        if not seen.size:
            return
        counts = tick.counts[:, seen]
        # A share of the tick's samples: what costs mean must not depend on replicas.
        share = counts / counts.sum(axis=0)
        along = np.arange(seen.size)
        over_of, under_of, raw_of = {}, {}, {}
        for number, decay in enumerate(self._decays):
            fresh = self._raw[number, seen] < 0
            rate = np.where(fresh, 1.0, decay)
            usage = self._usage[number][:, seen] * (1.0 - rate) + share * rate
            self._usage[number][:, seen] = usage
            upto = np.cumsum(usage, axis=0)
            over = upto[-1] - upto  # weight above each limit: its bucket still fits
            under = upto - usage
            price = self.costs.overrun * over + self.costs.underrun * under
            before = self._raw[number, seen]
            price += self.costs.limit_change
            price[np.maximum(before, 0), along] -= np.where(fresh, 0.0, self.costs.limit_change)
            best = price.argmin(axis=0)
            self._raw[number, seen] = best
            over_of[decay], under_of[decay], raw_of[decay] = over, under, best
        for number, model in enumerate(self.models):
            limit = np.minimum(raw_of[model.decay] + model.margin_buckets, self.layout.count - 1)
            before = self._limit[number, seen]
            changed = (limit != before) & (before >= 0)
            paid = (
                self.costs.overrun * over_of[model.decay][limit, along]
                + self.costs.underrun * under_of[model.decay][limit, along]
                + self.costs.limit_change * changed
            )
            known = self._cost[number, seen]
            rate = np.where(before < 0, 1.0, self.costs.decay)
            self._cost[number, seen] = rate * paid + (1.0 - rate) * known
            self._limit[number, seen] = limit
        self._choose(seen)

    def limits(self) -> Floats:
        """Return the limit per slot, cores or bytes; 0 where nothing was seen."""
        found: Floats = np.where(self._final >= 0, self.layout.ends[self._final], 0.0)
        return found

    def _choose(self, seen: Columns) -> None:
        price = self._cost[:, seen].copy()
        known = self._final[seen] >= 0
        price += self.costs.model_change * known
        along = np.arange(seen.size)
        price[self._model[seen], along] -= self.costs.model_change * known
        price += self.costs.limit_change * (known & (self._limit[:, seen] != self._final[seen]))
        best = price.argmin(axis=0)
        self._model[seen] = best
        self._final[seen] = self._limit[best, seen]
