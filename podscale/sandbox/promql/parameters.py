"""Parameters of Prometheus's HTTP API: times, durations, queries and selectors."""

from datetime import UTC, datetime

from podscale.core.times.duration import DurationError, parse_prometheus_ns
from podscale.feed.prover.tree import Node, NotPromql, VectorSelector, parse
from podscale.sandbox.promql.values import BadData, unsupported

_STEPS = 11_000  # as Prometheus


def time_ms(text: str, name: str) -> int:
    """Return unix milliseconds of unix seconds or RFC 3339; raises ``BadData``."""
    try:
        return round(float(text) * 1000)  # which refuses what is not finite
    except (OverflowError, ValueError):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise BadData(
                f'invalid parameter "{name}": cannot parse "{text}" to a valid timestamp'
            ) from None
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str, name: str) -> int:
    """Return milliseconds of seconds or ``1h30m``; raises ``BadData``."""
    try:
        return round(float(text) * 1000)
    except (OverflowError, ValueError):
        try:
            return parse_prometheus_ns(text) // 1_000_000
        except DurationError:
            raise BadData(
                f'invalid parameter "{name}": cannot parse "{text}" to a valid duration'
            ) from None


def steps(start_ms: int, end_ms: int, step_ms: int) -> range:
    """Return the times of a range query; raises ``BadData``."""
    if end_ms < start_ms:
        raise BadData('invalid parameter "end": end timestamp must not be before start time')
    if step_ms <= 0:
        raise BadData('invalid parameter "step": zero or negative query resolution step widths')
    if (end_ms - start_ms) // step_ms > _STEPS:
        raise BadData("exceeded maximum resolution of 11,000 points per timeseries")
    return range(start_ms, end_ms + 1, step_ms)


def query(text: str) -> Node:
    """Return the tree of a query; raises ``BadData`` or ``Unanswerable``."""
    try:
        return parse(text)
    except NotPromql as error:
        # What the tree cannot say is PromQL that we do not know; the rest is no PromQL.
        if error.__cause__ is None or isinstance(error.__cause__, NotPromql):
            raise unsupported(str(error)) from None
        raise BadData(f'invalid parameter "query": {error}') from None


def selection(text: str) -> VectorSelector:
    """Return the selector of a ``match[]``; raises ``BadData`` or ``Unanswerable``."""
    selector = query(text)
    if not isinstance(selector, VectorSelector) or selector.range_ms is not None:
        raise BadData(f'invalid parameter "match[]": {text} is not a vector selector')
    return selector
