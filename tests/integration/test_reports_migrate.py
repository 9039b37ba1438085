"""Public reports about migrate and the files that people have, each a folder in ``reports``.

``expected.md`` beside the input says what users saw and what has to come.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.commands import podscale

REPORTS = Path(__file__).parent / "reports"
SEVERAL = "the query may return several elements"


def migrated(folder: str, file: str = "scaledobject.yaml") -> tuple[str, list[dict[str, Any]]]:
    """Return what migrate prints, and its documents: the rules, and the HPA."""
    done = podscale("migrate", str(REPORTS / folder / file))
    assert done.returncode == 0, done.stderr
    return done.stdout, [each for each in yaml.safe_load_all(done.stdout) if each]


def below(printed: str, title: str) -> str:
    return printed.partition(f"# {title}:\n")[2].partition(":\n")[0]


@pytest.mark.parametrize(("folder", "words"), [
    ("keda-amazon-managed-prometheus",
     ("awsRegion", "identityOwner", "SigV4", "put a signing proxy in between")),
    ("keda-bound-service-account-token",
     ("boundServiceAccountToken", "--prometheus-auth-incluster", "--prometheus-token-file")),
])  # fmt: skip
def test_how_keda_reaches_prometheus_is_told_with_its_equal(folder, words):
    printed, _ = migrated(folder)
    assert [each for each in words if each not in below(printed, "cannot be carried over")] == []


@pytest.mark.parametrize(("folder", "series_query"), [
    ("keda-or-of-a-renamed-metric", '{__name__=~"kafka_lag_renamed|kafka_consumergroup_lag"}'),
    ("keda-or-of-native-and-classic-histograms",
     '{__name__=~"http_request_duration_seconds|http_request_duration_seconds_sum"}'),
])  # fmt: skip
def test_a_rule_is_listed_while_either_side_of_or_has_series(folder, series_query):
    _, (rules, _) = migrated(folder)
    assert rules["externalRules"][0]["seriesQuery"] == series_query


@pytest.mark.parametrize(
    "folder", ["keda-range-longer-than-discovery", "keda-offset-longer-than-discovery"]
)
def test_a_query_that_looks_back_further_than_discovery_hangs_on_up(folder):
    printed, (rules, _) = migrated(folder)
    assert rules["externalRules"][0]["seriesQuery"] == "up"
    assert "--metrics-max-age" in below(printed, "will behave differently")


@pytest.mark.parametrize(("folder", "is_told"), [
    ("keda-several-elements-of-a-quantile", False),
    ("keda-several-elements-of-count-values", True),
    ("keda-several-elements-of-the-hour", False),
])  # fmt: skip
def test_several_elements_are_told_of_queries_that_may_return_them(folder, is_told):
    assert (SEVERAL in migrated(folder)[0]) is is_told


def test_a_query_that_only_prometheus_reads_is_carried_over_as_it_stands():
    printed, (rules, hpa) = migrated("promql-digit-separators-of-keda")
    assert "cannot be carried over" not in printed
    query = "sum(rate(orders_total[2m])) * 1_000"
    assert rules["externalRules"][0]["metricsQuery"] == query
    assert hpa["kind"] == "HorizontalPodAutoscaler"
