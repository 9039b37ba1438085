"""Public reports about migrate and the files that people have, each a folder in ``reports``.

``expected.md`` beside the input says what users saw and what has to come.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.test_reports_doctor import ASKED, doctor
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
async def test_a_rule_is_listed_while_either_side_of_or_has_series(folder, series_query, tmp_path):
    _, (rules, _) = migrated(folder)
    assert rules["externalRules"][0]["seriesQuery"] == series_query
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    metric = (ASKED, "--api", "external", "--metric", "kafka-worker-0", "-n", "kafka")
    _, said = await doctor(file, REPORTS / folder / "series.prom", *metric)
    # The stand-in has no native histograms, and no functions of them.
    stage = "QueryInvalid" if "native" in folder else "Healthy"
    assert f"kafka-worker-0 (external) {stage}" in said


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


@pytest.mark.parametrize(("folder", "places"), [
    ("helm-custom-is-a-map", ["3:3: HelmValues: rules.custom is a mapping"]),
    ("helm-external-is-a-map", ["3:3: HelmValues: rules.external is a mapping"]),
    ("helm-key-misspelt", [
        "3:3: HelmValues: unknown key 'customs' of rules; did you mean 'custom'?",
        "7:3: HelmValues: unknown key 'externals' of rules; did you mean 'external'?",
    ]),
])  # fmt: skip
def test_values_that_the_chart_breaks_are_findings_at_their_lines(folder, places):
    file = str(REPORTS / folder / "values.yaml")
    doctor, migrate = podscale("doctor", "--no-cluster", "-f", file), podscale("migrate", file)
    assert (doctor.returncode, migrate.returncode) == (1, 1)
    for place in places:
        assert f"{file}:{place}" in doctor.stdout
        assert f"{file}:{place}" in migrate.stdout
    assert "no problems found" not in doctor.stdout
    assert "as the chart renders it" not in doctor.stdout + migrate.stdout


@pytest.mark.parametrize(("folder", "file"), [
    ("values-in-a-helmrelease", "helmrelease.yaml"),
    ("values-of-an-umbrella-chart", "values.yaml"),
])  # fmt: skip
def test_values_are_found_in_what_wraps_them(folder, file):
    done = podscale("doctor", "--no-cluster", "-f", str(REPORTS / folder / file))
    assert done.returncode == 0, done.stdout
    assert "1 rule read and linted" in done.stdout
    moved = podscale("migrate", str(REPORTS / folder / file))
    assert moved.returncode == 0
    assert "1 rule, taken as it is" in moved.stdout


def test_json_with_tabs_reads_as_with_spaces():
    _, (hpa,) = migrated("tabs-json-to-migrate", "scaledobject.json")
    assert hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70


def test_yaml_with_tabs_behind_the_colon_is_decided():
    folder = REPORTS / "tabs-between-key-and-value"
    hpa, seen = str(folder / "hpa.yaml"), str(folder / "seen.yaml")
    done = podscale("hpa", "eval", "-f", hpa, "--observation", seen)
    assert done.returncode == 0, done.stderr
    assert ": 2 replicas" in done.stdout
