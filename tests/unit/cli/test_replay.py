"""``podscale replay`` from files: what is printed, what is refused, and where."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from podscale.cli.replay.command import command
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.forecast.demands import jumps
from tests.unit.hpa.simulate.loads import pods_metric


@pytest.fixture
def files(tmp_path):
    """Return paths of a trace and of two specs."""
    rows = "".join(f"{1700000000 + 15 * at},{100 + 50 * (at // 40)}\n" for at in range(240))
    trace = tmp_path / "load.csv"
    trace.write_text("ts,value\n" + rows)
    for name, target in (("today", "50"), ("other", "25")):
        spec = written({"minReplicas": 1, "metrics": [pods_metric(target)]})
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    return trace, tmp_path / "today.yaml", tmp_path / "other.yaml"


def call(*words: object):
    return CliRunner().invoke(command, [str(word) for word in words])


def test_each_spec_and_the_oracle_stand_side_by_side(files):
    trace, today, other = files
    shown = call("--trace", trace, "--hpa", today, "--hpa", other)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("SPEC")
    assert [line.split()[0] for line in lines[1:4]] == [str(today), str(other), "oracle"]
    assert "a pod serves 62.5 of http_requests (target / 0.8)" in shown.stdout


def test_pod_hours_of_less_than_a_minute_are_no_zero(files):
    trace, today, _ = files
    trace.write_text("ts,value\n" + "".join(f"{1700000000 + 15 * at},40\n" for at in range(4)))
    shown = call("--trace", trace, "--hpa", today)
    assert shown.exit_code == 0, shown.output
    titles, *lines = (line.split() for line in shown.stdout.splitlines()[:3])
    assert titles[:2] == ["SPEC", "POD-HOURS"]
    assert all(float(line[1]) > 0 for line in lines), shown.output


@pytest.mark.parametrize("form", ["json", "yaml", "csv"])
def test_the_data_forms_say_the_same(files, form):
    trace, today, other = files
    prices = trace.parent / "prices.yaml"
    prices.write_text("{currency: EUR, coreHour: 0.5, podHour: 0.1}")
    shown = call("--trace", trace, "--hpa", today, "--hpa", other, "--price", prices,
                 "--request", "cpu=200m", "-o", form)  # fmt: skip
    assert shown.exit_code == 0, shown.output
    if form == "csv":
        lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    else:
        read = json.loads if form == "json" else yaml.safe_load
        lines = read(shown.stdout)["specs"]
    assert [line["spec"] for line in lines] == [str(today), str(other), "oracle"]
    hours, cost = (float(lines[0][name]) for name in ("podHours", "cost"))
    assert cost == pytest.approx(hours * 0.2, abs=0.01)
    assert float(lines[1]["podHours"]) > hours  # half the target


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--hpa", "TODAY"), "--trace FILE"),
        (("--trace", "TRACE"), "--hpa FILE"),
        (("--trace", "none.csv", "--hpa", "TODAY"), "none.csv: cannot be read"),
        (("--trace", "TODAY", "--hpa", "TODAY"), "today.yaml:1: a header"),
        (("--trace", "SEMICOLONS", "--hpa", "TODAY"), "with commas between"),
        (("--trace", "COLUMNS", "--hpa", "TODAY"), "columns.csv: no column is called"),
        (("--trace", "TRACE", "--hpa", "TRACE"), "load.csv"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--ready-after", "soon"), "--ready-after"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--ready-after", "-1s"), "--ready-after"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--request", "cpu"), "--request cpu"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--pod-capacity", "0"), "--pod-capacity"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--price", "TODAY"), "today.yaml"),
        (
            ("hpa/web", "--trace", "TRACE"),
            "drop --trace to replay what Prometheus has, or drop hpa/web",
        ),
        (("hpa", "--trace", "TRACE"), "drop --trace to replay what Prometheus has, or drop hpa to"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--scale", "nan"), "--scale nan: a finite number"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--scale", "inf"), "--scale inf: a finite number"),
        (("--trace", "TRACE", "--hpa", "TODAY", "--scale", "0"), "--scale 0: a finite number"),
        (("hpa/web", "--scale", "2"), "--scale: of a --trace, not of Prometheus's history"),
        (("hpa/web", "--percentile", "0.9", "--margin", "1"), "--percentile, --margin: of VPAs"),
        (
            ("--trace", "TRACE", "--hpa", "TODAY", "--since", "1d"),
            "--since: of Prometheus's history",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_2(files, words, said):
    trace, today, _ = files
    columns, semicolons = trace.parent / "columns.csv", trace.parent / "semicolons.csv"
    columns.write_text("ts,foo,bar\n1700000000,1,2\n1700000060,1,2\n")
    semicolons.write_text("zeit;rps\n1700000000;1\n")
    named = {"TRACE": trace, "TODAY": today, "COLUMNS": columns, "SEMICOLONS": semicolons}
    shown = call(*(named.get(word, word) for word in words))
    assert shown.exit_code == 2
    assert said in shown.output
    assert "Traceback" not in shown.output


def test_a_utilization_without_a_request_is_refused(files):
    trace, today, _ = files
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = written(
        {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}
    )
    today.write_text(yaml.safe_dump(spec))
    shown = call("--trace", trace, "--hpa", today)
    assert shown.exit_code == 2
    assert "--request cpu=500m" in shown.output
    assert call("--trace", trace, "--hpa", today, "--request", "cpu=500m").exit_code == 0


def test_ctrl_c_prints_what_is_done_and_ends_with_130(files):
    trace, today, _ = files
    rows = "".join(f"{1700000000 + 15 * at},{100 + at % 700}\n" for at in range(200_000))
    trace.write_text("ts,value\n" + rows)
    calls = [word for _ in range(40) for word in ("--hpa", str(today))]
    running = subprocess.Popen(
        [sys.executable, "-m", "podscale", "replay", "--trace", str(trace), *calls],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_children(running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "interrupted" in out
    assert "oracle" in out
    assert "Traceback" not in err


def _wait_for_children(running: subprocess.Popen[str]) -> None:
    # The runs are theirs, and the parent collects what they have done.
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    until = time.monotonic() + 60.0
    while not children.read_text().split():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_html_report_needs_no_network_and_names_end_no_script(files):
    trace, today, other = files
    evil = trace.parent / "<b>other.yaml"
    evil.write_text(other.read_text())
    page = trace.parent / "report.html"
    shown = call("--trace", trace, "--hpa", today, "--hpa", evil, "--sweep", "target=20,40",
                 "--html", page)  # fmt: skip
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert "default-src 'none'" in text
    assert re.search(r"""(?:src|href)=|url\(|@import|\{\{\w+\}\}""", text) is None
    assert "<b>other" not in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [row[0] for row in data["rows"]][:2] == [str(today), str(evil)]
    assert [line["name"] for line in data["pods"]] == ["needed", str(today), str(evil)]
    assert {len(line["values"]) for line in data["pods"]} == {len(data["times"])}


def test_a_sweep_prints_the_spec_it_chooses(files):
    trace, today, _ = files
    words = ("--trace", trace, "--hpa", today, "--sweep", "target=20..60:10")
    shown = call(*words, "--at-most-unserved", "0%", "-o", "json")
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.stdout)
    chosen = report["chosen"]["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    swept = [each for each in report["specs"] if each["spec"].startswith("target=")]
    fitting = [each for each in swept if each["unserved"] == 0]
    assert f"target={chosen}" == min(fitting, key=lambda each: each["podHours"])["spec"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--sweep", "maxReplica=1,2"),
            "--sweep maxReplica: unknown field spec.maxReplica; did you mean maxReplicas?",
        ),
        (
            ("--sweep", "targt=1..3:1"),
            "--sweep targt: unknown field spec.targt; did you mean target?",
        ),
        (
            ("--sweep", "scaleDown.windw=1"),
            "--sweep scaleDown.windw=1: unknown field spec.behavior",
        ),
        (("--sweep", "target=1..1000000:1"), "1000000 combinations"),
        (("--sweep", "maxReplicas=0"), "spec.maxReplicas"),
        (("--at-most-unserved", "1%"), "--sweep"),
        (("--sweep", "target=40,50", "--at-most-unserved", "many"), "a share is wanted"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(files, words, said):
    trace, today, _ = files
    shown = call("--trace", trace, "--hpa", today, *words)
    assert shown.exit_code == 2
    assert said in shown.output


def test_a_forecast_is_a_row_and_its_gate_a_table(tmp_path):
    today, trace = tmp_path / "today.yaml", tmp_path / "days.csv"
    spec = written({"minReplicas": 1, "maxReplicas": 100, "metrics": [pods_metric("50")]})
    today.write_text(yaml.safe_dump(spec))
    values = 50.0 * jumps(6)
    rows = (f"{1699920000 + 60 * at},{value:.1f}\n" for at, value in enumerate(values))
    trace.write_text("ts,value\n" + "".join(rows))
    words = ("--trace", trace, "--hpa", today, "--forecast", "--ready-after", "10m")
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    names = [line.split()[0] for line in shown.stdout.splitlines() if line]
    assert names[1:4] == [str(today), "forecast", "oracle"]
    assert "the gate over the last 5 days:" in shown.stdout
    assert len([line for line in shown.stdout.splitlines() if line.endswith("taken")]) == 1
    found = json.loads(call(*words, "-o", "json").stdout)
    plain, ahead = found["specs"][:2]
    assert ahead["unserved"] < plain["unserved"]
    assert ahead["podHours"] > plain["podHours"]
    (taken,) = [row for row in found["forecast"]["rows"] if row["isTaken"]]
    assert taken["candidate"] == found["forecast"]["candidate"]


def test_a_forecast_of_too_few_days_says_so(files):
    trace, today, _ = files
    shown = call("--trace", trace, "--hpa", today, "--forecast")
    assert shown.exit_code == 0, shown.output
    assert "a forecast needs 3 whole days of history" in shown.stdout
    rows = json.loads(call("--trace", trace, "--hpa", today, "--forecast", "-o", "json").stdout)
    plain, ahead = rows["specs"][:2]
    assert {**plain, "spec": ""} == {**ahead, "spec": ""}


@pytest.fixture
def usage(tmp_path):
    """Return a trace of a pod's usage, a day at five minutes."""
    rows = "".join(f"{1700000000 + 300 * at},{0.1 + at % 12 / 100},{3e8}\n" for at in range(288))
    trace = tmp_path / "usage.csv"
    trace.write_text("ts,web/cpu,web/memory\n" + rows)
    return trace


def test_a_vpa_is_replayed_with_each_setting(usage):
    words = ("vpa", "--trace", usage, "--request", "web/cpu=500m", "--percentile", "0.5,0.9",
             "--half-life", "1h,24h")  # fmt: skip
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[1][:4] == ["today", "web", "cpu", "500m"]
    assert {" ".join(line[:3]) for line in lines[2:10]} == {
        f"p{share} +15% {hours}h" for share in (50, 90) for hours in (1, 24)
    }
    found = json.loads(call(*words, "-o", "json").stdout)
    assert found["kind"] == "SizingReport"
    assert len(found["rows"]) == 1 + 4 * 2
    assert len(call(*words, "-o", "csv").stdout.splitlines()) == 1 + 1 + 4 * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("vpa",), "say vpa/NAME"),
        (("vpa", "--trace", "USAGE", "--percentile", "90"), "--percentile 90"),
        (("vpa", "--trace", "USAGE", "--margin", "some"), "--margin some"),
        (("vpa", "--trace", "USAGE", "--half-life", "0s"), "--half-life 0s"),
        (("vpa", "--trace", "LOAD"), "neither cpu nor memory"),
        (("vpa", "--trace", "USAGE", "--sweep", "target=1"), "--sweep: of HPAs, not of a VPA"),
        (
            ("vpa", "--trace", "USAGE", "--forecast", "--ready-after", "1m"),
            "--ready-after, --forecast",
        ),
        (("vpa/web", "--trace", "USAGE"), "or say vpa alone to replay the file"),
    ],
)
def test_what_is_wrong_with_a_replay_of_a_vpa_is_one_sentence(files, usage, words, said):
    named = {"USAGE": usage, "LOAD": files[0]}
    shown = call(*(named.get(word, word) for word in words))
    assert shown.exit_code == 2
    assert said in shown.output
    assert "Traceback" not in shown.output
