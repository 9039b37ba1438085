"""A report on a cluster in Chromium: 10,000 rows in one file, sorted and filtered offline."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from podscale.cli.report.run import html_of
from podscale.replay.fleet.reading import FleetSpan
from podscale.replay.fleet.report import Chance, FleetLine, FleetReport, ResourceLine
from podscale.replay.fleet.sizing import CLASSES, UsageShape
from podscale.replay.fleet.usage import FleetContainer, FleetWorkload
from podscale.replay.inputs import PriceList

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = 10_000
GIB = 2.0**30


def line(number: int) -> FleetLine:
    shape = UsageShape(CLASSES[number % 6], 1.0, 1.5, 0.2, 0.0, 1.0)
    name = "</script><b>" if number == 77 else f"web-{number}"
    sized = FleetContainer(FleetWorkload(f"team-{number % 50}", "Deployment", name), "main")
    chance = Chance(number / ROWS, number / ROWS / 2, min(1.0, number / ROWS * 2))
    one = (1.0, 2.0, 0.1, 0.2, 0.3, 0.4)
    cpu = ResourceLine(*one, shape, 0.5, (), chance, 0.0, 0.5 * (1 + number % 997))
    memory = ResourceLine(*(GIB * each for each in one), shape, GIB / 2, (), chance, 0.0, GIB / 2)
    return FleetLine(sized, 1.0, False, False, 8.0, 0, None, {"cpu": cpu, "memory": memory})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [line(number) for number in range(ROWS)]
    report = FleetReport(lines, FleetSpan(1_772_409_600, 32), ["a note"],
                         PriceList("EUR", 0.04, 0.005))  # fmt: skip
    made = tmp_path_factory.mktemp("report") / "report.html"
    made.write_text(html_of(report, ""), encoding="utf-8")
    return made


@pytest_asyncio.fixture(
    loop_scope="module", params=[(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")]
)
async def page(
    chromium: Browser, file: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Page]:
    width, scheme = request.param
    context = await chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    opened = await context.new_page()
    asked: list[str] = []
    opened.on("request", lambda each: asked.append(each.url))
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    await opened.goto(file.as_uri())
    yield opened
    assert (asked, errors) == ([file.as_uri()], [])
    await context.close()


async def test_ten_thousand_rows_are_sorted_and_filtered(page: Page) -> None:
    await expect(page.locator("#count")).to_have_text(f"{ROWS} of {ROWS}")
    assert await page.locator("#body tr").count() < 1_000  # the rest comes when it is looked for
    await page.get_by_role("button", name="risk of CPU").click()
    await expect(page.locator("#body tr").first).to_contain_text("web-9999")
    await page.get_by_role("button", name="risk of CPU").click()
    await expect(page.locator("#body tr").first).to_contain_text("web-0")
    await page.get_by_label("Filter by name").fill("team-7/web-1007")
    await expect(page.locator("#count")).to_have_text(f"1 of {ROWS}")
    await page.get_by_label("Filter by name").fill("")
    await page.get_by_label("class").select_option("batch")
    await page.get_by_label("risk at most").select_option("0.05")
    await expect(page.locator("#count")).to_have_text(re.compile(rf"^8\d of {ROWS}$"))


async def test_a_row_opens_and_names_are_text(page: Page) -> None:
    await page.get_by_label("Filter by name").fill("</script>")
    row = page.get_by_role("button", name="team-27/</script><b>")
    await row.click()
    await expect(page.locator("tr.more")).to_contain_text("cpu p99")
    await row.click()
    await expect(page.locator("tr.more")).to_have_count(0)


async def test_nothing_is_wider_than_the_window(page: Page) -> None:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wide) <= 0
