"""Cron expressions, with a bound on how far ahead one is looked for, and on the way there.

CronSim looks 50 years ahead, which takes 10 ms for an expression that never comes.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import repeat

from cronsim import CronSim, CronSimError

_SPAN = timedelta(days=5 * 366)


class Cron(CronSim):
    """The times of one expression after (or before) a moment, for five years.

    ``steps`` has one for each month, day, hour or minute that is skipped to, at most 20 us each;
    where they end ``CronSimError`` is raised, as it is for what cannot be read.
    """

    def __init__(
        self,
        text: str,
        moment: datetime,
        *,
        is_back: bool = False,
        steps: Iterator[object] | None = None,
    ) -> None:
        super().__init__(text, moment, is_back)
        self._begin = self.dt
        self._steps = repeat(None) if steps is None else steps

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
        try:
            next(self._steps)
        except StopIteration:
            raise CronSimError("it and those before it take too many steps to find") from None
