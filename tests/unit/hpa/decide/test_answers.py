"""The words of a failure: upstream's, and each said once."""

import pytest

from hpa.decide.metrics.answers import summed, text_of
from hpa.decide.numbers import INT64_MAX
from hpa.decide.observation import MetricFailure
from podscale.core.metrics import NoData, NotFound, Unavailable

FIRE = "unable to fetch metrics from custom metrics API: the server is on fire"
NONE = "no metrics returned from external metrics API"


@pytest.mark.parametrize(
    ("failure", "api", "text"),
    [
        pytest.param(Unavailable("Down", "the server is on fire"), "custom", FIRE, id="bare"),
        pytest.param(Unavailable("Down", FIRE), "custom", FIRE, id="said-by-the-client"),
        pytest.param(NoData("NoSeries", ""), "external", NONE, id="no-items"),
        pytest.param(NoData("NoMetricsReturned", NONE), "external", NONE, id="no-items-said"),
        pytest.param(
            NotFound("NotFound", "no rule"),
            "resource",
            "unable to fetch metrics from resource metrics API: no rule",
            id="not-found",
        ),
    ],
)
def test_a_failure_is_told_in_upstreams_words_once(
    failure: MetricFailure, api: str, text: str
) -> None:
    assert text_of(failure, api) == text


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ((1, 2, -4), -1),
        ((INT64_MAX, -5), INT64_MAX - 5),  # full, and not over it
        ((INT64_MAX, 1, -5), INT64_MAX),
        ((INT64_MAX, 1, -INT64_MAX), INT64_MAX),
    ],
)
def test_a_sum_stays_where_it_passed_the_end(values: tuple[int, ...], total: int) -> None:
    assert summed(values) == total
