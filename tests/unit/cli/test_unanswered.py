"""What could not be done because nobody answers: exit code 1, who it was, and what to do."""

import pytest

from podscale.cli.prometheus import PrometheusChoice, PrometheusUnanswered
from podscale.cli.replay.inputs import ReplayOptions, errors_in_words
from podscale.feed.http import refusals
from tests.kit.commands import podscale

NOWHERE = "http://127.0.0.1:1"


def test_a_report_of_a_prometheus_that_is_not_there_could_not_be_done():
    done = podscale("report", "-A", "--prometheus-url", NOWHERE)
    assert done.returncode == 1
    assert done.stderr.startswith(f"podscale report: {NOWHERE}: ")
    assert "check --prometheus-url" in done.stderr


def test_a_replay_of_a_prometheus_that_hangs_names_it_and_what_to_do():
    options = ReplayOptions(prometheus=PrometheusChoice(NOWHERE))
    with pytest.raises(PrometheusUnanswered) as caught, errors_in_words(options):
        raise refusals.error("deadline")
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"{NOWHERE}: Prometheus did not answer in time. Try again, or choose another one with "
        "--prometheus-url"
    )
