"""Rules of public reports: what the doctor has to say of each, and what it must not say.

A folder of ``reports`` has its input, and the series that Prometheus has where it is asked.
"""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from podscale.sandbox.load import ExposedSample
from podscale.sandbox.promql.server import PrometheusStandIn
from tests.kit.commands import podscale

REPORTS = Path(__file__).with_name("reports")
OWNERS = ["test_reports_doctor.py", "test_reports_migrate.py", "test_reports_replay.py"]
ASKED = "--prometheus-url"  # with the series of the folder


class Expected(Struct, frozen=True):
    """What a call of the doctor comes to."""

    folder: str
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    code: int = 1


def sound(folder: str, *words: str, never: tuple[str, ...] = ()) -> Expected:
    return Expected(folder, ("no problems found",), never, words, code=0)


EXPECTED = [
    sound("histogram-by-le-and-object", never=("SeveralSeries",)),
    sound("histogram-by-le-and-object", ASKED, never=("SeveralSeries",)),
    Expected("histogram-by-le-only", ("GroupByLost", "pod", "by (le, <<.GroupBy>>)"),
             never=("by (<<.GroupBy>>)",)),
    Expected("histogram-without-le", ("drops the label le", "by (le, <<.GroupBy>>)")),
    sound("several-series-of-a-fixed-label", never=("SeveralSeries",)),
    Expected("one-name-asked-by-the-team-that-lost",
             ("ShadowedByOtherRule", "team_a:busy_ratio", "team_b:busy_ratio"), ("not a-0",),
             (ASKED, "--metric", "busy_ratio", "-n", "team-a", "--name", "a-0")),
    Expected("one-name-for-a-family",
             ("3 series names come to one metric, http_requests_per_second",
              "only http_request_duration_seconds_sum"), words=(ASKED,)),
    Expected("one-name-for-the-series-of-each-team",
             ("2 series names come to one metric, busy_ratio", "only team_b:busy_ratio",
              "name.as", '{__name__=~"'), words=(ASKED,)),
    sound("one-name-of-a-written-query", ASKED, never=("NameTwice",)),
    Expected("external-metric-of-another-namespace",
             ("EmptyResult", "The series' namespace is mq, not shop.",
              "resources.namespaced: false"), ("one by one",),
             (ASKED, "--api", "external", "--metric", "rabbit_ready", "-n", "shop")),
    Expected("custom-metric-of-another-namespace",
             ("EmptyResult", "The series' namespace is shop, not other."), ("one by one",),
             (ASKED, "--metric", "http_requests_total", "-n", "other", "--name", "web-0")),
    Expected("usage-counted-twice", ("CountedTwice", 'container!=""', 'id="/"'), words=(ASKED,)),
    sound("promql-digit-separators", never=("QueryInvalid", "NotCoalesced")),
    sound("promql-duration-arithmetic", never=("QueryInvalid", "NotCoalesced")),
    sound("raw-value-in-quotes", "--disable-lint", "NotCoalesced", never=("RawValue",)),
]  # fmt: skip


async def doctor(text: Path, series: Path, *words: str) -> tuple[int, str]:
    """Return the exit code, and what it prints with its lines joined."""
    samples = []
    if series.exists():
        for family in text_string_to_metric_families(series.read_text()):
            samples += [ExposedSample(s.name, s.labels, s.value) for s in family.samples]
    begin_s = time.time() - 300
    now_s = [begin_s]
    async with PrometheusStandIn(
        lambda: now_s[0], page=lambda _: samples, every_s=3600.0
    ) as prometheus:
        while now_s[0] < begin_s + 300:
            now_s[0] += 5
            prometheus.scrape()
        given = [each for word in words for each in ([word, prometheus.url] if word == ASKED
                                                     else [word])]  # fmt: skip
        done = await asyncio.to_thread(
            podscale, "doctor", "--no-cluster", "-f", str(text), *given, env={"COLUMNS": "100"}
        )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda each: each.folder)
async def test_a_report_is_answered_by_its_reason(expected: Expected) -> None:
    folder = REPORTS / expected.folder
    code, said = await doctor(folder / "rules.yaml", folder / "series.prom", *expected.words)
    assert [each for each in expected.says if each not in said] == [], said
    assert [each for each in expected.never if each in said] == [], said
    assert code == expected.code, said


def test_each_report_is_claimed_by_one_test() -> None:
    files = [Path(__file__).with_name(name) for name in OWNERS]
    texts = [file.read_text() for file in files if file.exists()]
    claims = {each.name: sum(f'"{each.name}"' in text for text in texts)
              for each in REPORTS.iterdir()}  # fmt: skip
    assert {name: number for name, number in claims.items() if number != 1} == {}
