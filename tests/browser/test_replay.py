"""The report of a replay opens from a file, draws its charts, in light and in dark."""

import pytest
import yaml
from click.testing import CliRunner
from playwright.async_api import Browser

from podscale.cli.replay.command import command
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.simulate.loads import pods_metric

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_report_opens_without_a_network(chromium: Browser, tmp_path, scheme) -> None:
    rows = "".join(f"{1700000000 + 15 * at},{100 + 50 * (at // 40)}\n" for at in range(240))
    (tmp_path / "load.csv").write_text("ts,value\n" + rows)
    spec = written({"minReplicas": 1, "metrics": [pods_metric("50")]})
    (tmp_path / "hpa.yaml").write_text(yaml.safe_dump(spec))
    report = tmp_path / "report.html"
    words = ["--trace", str(tmp_path / "load.csv"), "--hpa", str(tmp_path / "hpa.yaml")]
    shown = CliRunner().invoke(command, [*words, "--html", str(report)])
    assert shown.exit_code == 0, shown.output
    page = await chromium.new_page(color_scheme=scheme)
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(report.as_uri())
    cells = await page.locator("#rows td").all_inner_texts()
    paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    drawn = await page.evaluate(
        "Array.from(document.querySelectorAll('canvas'), (canvas) => canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte))"
    )
    await page.close()
    assert errors == []
    assert asked == [report.as_uri()]
    assert "oracle" in cells
    assert drawn == [True, True]
    assert paper == {"light": "rgb(246, 247, 249)", "dark": "rgb(14, 17, 23)"}[scheme]
