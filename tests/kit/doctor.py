"""The doctor's questions, answered as a test has written it."""

import asyncio
import re
from collections.abc import Callable, Sequence

from adapter.doctor.evidence import Diagnosis, Given, Need, Series, SeriesOf, Way, drive


class WrittenAnswers:
    """What a case says that Prometheus answers."""

    def __init__(
        self,
        series: Sequence[tuple[str, Given]],
        series_all_time: Sequence[tuple[str, Given]],
        results: Sequence[tuple[str, Given]],
    ) -> None:
        """Take answers by ``match[]`` and by a regular expression searched in the PromQL."""
        self._series = dict(series)
        self._all_time = dict(series_all_time)
        self._results = [(re.compile(text), given) for text, given in results]

    def __call__(self, need: Need) -> Given:
        """Return what was recorded."""
        if isinstance(need, SeriesOf):
            known = self._series if need.within_window else self._all_time
            return known.get(need.match, Series(()))
        for found, given in self._results:
            if found.search(need.promql):
                return given
        return Series(())


def run(way: Way[Diagnosis], answers: Callable[[Need], Given]) -> Diagnosis:
    """Return the diagnosis, with every need answered by ``answers``."""

    async def answer(need: Need) -> Given:
        return answers(need)

    return asyncio.run(drive(way, answer))


def words(found: Diagnosis) -> str:
    """Return all that a diagnosis says, as one text."""
    where = f"{found.place or found.section}: " if found.rule is not None else ""
    beside = "".join(f" {each.text}." for each in found.beside)
    return f"{found.stage}: {where}{found.seen} {found.change}{beside}".strip()
