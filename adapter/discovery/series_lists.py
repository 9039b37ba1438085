"""Asks Prometheus for the series of seriesQueries; a failure is a value, of these rules only."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from adapter.discovery.registry import RelistFailure, RuleState
from adapter.rules.ruleset import wanted_by
from adapter.stages import Stage
from podscale.core.metrics import Failure, Unavailable
from podscale.feed.errors import SPLITTABLE, QueryError
from podscale.feed.http.client import SeriesAnswer
from podscale.feed.http.series import Wanted
from podscale.feed.prover.confinement import shared_selector

log = structlog.get_logger(__name__)

ListedSeries = SeriesAnswer | RelistFailure


class Lister(Protocol):
    """What is asked of Prometheus here (``adapter.sources``)."""

    async def series(self, match: str, start_s: float, source: str, wanted: Wanted) -> SeriesAnswer:
        """Return names and label names, of one source or ("") of those that rules without one
        are answered from; raises ``podscale.feed.errors.QueryError``. Of names with very many
        label names only those ``wanted`` are sure to be told."""

    async def series_by(
        self, match: str, start_s: float, source: str, label: str, values: Sequence[str]
    ) -> Mapping[str, SeriesAnswer]:
        """Return them for each of several values of a label, from one answer; those are left out
        that have to be asked for alone. Raises ``QueryError``."""


async def listed(
    lister: Lister, sharing: Sequence[Sequence[RuleState]], start_s: float
) -> Sequence[ListedSeries | None]:
    """Return the series of each seriesQuery since ``start_s``, by the rules that share it; several
    are of one source, and differ by their namespace. ``None``: this one is to be asked for alone.
    """
    if len(sharing) != 1:
        return await _together(lister, [states[0] for states in sharing], start_s)
    (states,) = sharing
    try:
        source, match = states[0].rule.listed_by
        wanted = wanted_by([state.rule for state in states])
        return [await lister.series(match, start_s, source, wanted)]
    except QueryError as error:
        if error.kind != "bad-data":
            return [_failed(error.failure)]
        text = "Prometheus takes seriesQuery for no series selector: correct seriesQuery"
        return [RelistFailure(Stage.SERIES_QUERY_INVALID, text, error.failure.reason)]
    except Exception as error:  # noqa: BLE001 - one list must not end all
        return [bug("asking for its series failed", error, states)]


async def _together(
    lister: Lister, states: Sequence[RuleState], start_s: float
) -> Sequence[ListedSeries | None]:
    first = states[0].rule if states else None
    if first is None or first.confinement is None:
        return [None] * len(states)
    label = first.confinement.label
    namespaces = [state.rule.namespace for state in states]
    try:
        match = shared_selector(first.open_query, label, namespaces)
        found = await lister.series_by(match, start_s, first.source, label, namespaces)
        return [found.get(namespace) for namespace in namespaces]
    except QueryError as error:
        if error.kind == "bad-data" or error.kind in SPLITTABLE:
            reason, count = error.failure.reason, len(states)
            log.warning("asking namespaces one by one", rule=first.id, of=count, reason=reason)
            return [None] * len(states)
        return [_failed(error.failure)] * len(states)
    except Exception as error:  # noqa: BLE001 - one list must not end all
        return [bug("asking for their series together failed", error, states)] * len(states)


def bug(what: str, error: Exception, states: Sequence[RuleState]) -> RelistFailure:
    """Return the failure of rules on whose list something unexpected was raised.

    It must not end the process, and with it every replica at the same moment. Its words may hold
    secrets: they are the log's only.
    """
    said = f"{what} ({type(error).__name__}): see the log, and report it"
    news = [s.rule.id for s in states if s.failure is None or s.failure.message != said]
    if news:
        log.error("relist failed unexpectedly", rules=news, exc_info=error)
    return RelistFailure(Stage.PROMETHEUS_UNREACHABLE, said)


def _failed(failure: Failure) -> RelistFailure:
    stage = Stage.PROMETHEUS_UNREACHABLE
    if not isinstance(failure, Unavailable):
        return RelistFailure(stage, failure.message, failure.reason)
    return RelistFailure(
        stage, failure.message, failure.reason, failure.is_timeout, failure.retry_after_s,
        failure.since_s,
    )  # fmt: skip
