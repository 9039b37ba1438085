"""5,000 MetricRules over 500,000 series (500 over 50,000 in the short form) cost a relist at most
1.5 times the CPU and memory of the same series under rules of one file, in the same run: under as
many, and under ten that each read all namespaces."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest

from tests.integration import many_metric_rules as many
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

# A tenth takes hundredths of a second, and counts by the least of three.
NAMESPACES, TURNS = (50, 3) if os.environ.get("PODSCALE_SHORT") else (500, 1)
MOST = 1.5


@pytest.fixture
def series_url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    program = Program(
        "series",
        [sys.executable, "-m", many.__name__, "serve", str(port), str(NAMESPACES)],
        tmp_path / "series.log",
    )
    with program:
        wait_until("it serves", lambda: b"serves" in program.log.read_bytes(), 60, (program,))
        yield f"http://{LOOPBACK}:{port}"


def measured(form: str, url: str) -> dict[str, float]:
    return min((relisted(form, url) for _ in range(TURNS)), key=itemgetter("cpu_s"))


def relisted(form: str, url: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", many.__name__, form, url, str(NAMESPACES)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)
def test_thousands_of_rules_cost_what_their_series_do(
    series_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, few, objects = (measured(form, series_url) for form in ("file", "few", "objects"))
    ratio = objects["cpu_s"] / few["cpu_s"]
    with capsys.disabled():
        print(f"\n{NAMESPACES * many.KINDS} MetricRules: {objects}, as many of a file: {file}, "
              f"{many.KINDS} of a file: {few}, CPU of objects / of these: {ratio:.2f}")  # fmt: skip
    assert objects["series"] == file["series"] == few["series"]
    assert objects["series"] == NAMESPACES * many.KINDS * many.SERIES_EACH
    assert objects["cpu_s"] <= MOST * file["cpu_s"]
    assert objects["peak_mb"] <= MOST * min(file["peak_mb"], few["peak_mb"])
    assert objects["cpu_s"] <= MOST * few["cpu_s"]
