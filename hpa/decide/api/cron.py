"""Cron expressions, looked for within five years: CronSim goes on for 50, which takes 10 ms."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import repeat

from cronsim import CronSim, CronSimError

_SPAN = timedelta(days=5 * 366)
_ENDLESS = repeat(None)


class Cron(CronSim):
    """The times of one expression after a moment, or before it.

    ``steps`` has one for each month, day, hour or minute that is gone to, at most 20 us each;
    where they end ``CronSimError`` is raised, as it is for what cannot be read.
    """

    def __init__(
        self, text: str, moment: datetime, *,
        is_back: bool = False, steps: Iterator[object] = _ENDLESS,
    ) -> None:  # fmt: skip
        super().__init__(text, moment, is_back)
        self._begin, self._steps = self.dt, steps

    # CronSim looks at the month first in each of its steps.
    def advance_month(self) -> None:
        super().advance_month()
        self._step()

    def reverse_month(self) -> None:
        super().reverse_month()
        self._step()

    def _step(self) -> None:
        if abs(self.dt - self._begin) > _SPAN:
            raise StopIteration  # what CronSim raises after 50 years
        if next(self._steps, self) is self:
            raise CronSimError("it and those before it take too many steps to find")
