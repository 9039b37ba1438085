"""The page in Debian's Chromium, over three scenes that the product itself has decided."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Literal, get_args

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from podscale.feed.errors import Kind
from podscale.feed.http import refusals
from podscale.page.part import listening
from tests.browser.chromium import opened
from tests.browser.crowd import crowd
from tests.browser.measures import CONTRAST, NAMELESS, PAINTED
from tests.browser.scenes import Played

STATE = """(state) => document.querySelectorAll(".chip, .dot")
  .forEach((each) => each.setAttribute("data-state", state))"""
# What the axis of time writes below ticks that divide a span by six.
TICKS = """async (span) => {
  const app = document.querySelector("script[type=module]").src;
  const { spoken } = await import(new URL("charts.js", app));
  return spoken([...Array(7).keys()].map((each) => 1.8e9 + each * span / 6), span);
}"""
# Keys of charts that are not shown, and words that are wider than what holds them.
CUT = """() => [
  ...[...document.querySelectorAll(".panel:not([hidden]) .key:not([hidden])")]
    .filter((each) => !each.checkVisibility({ visibilityProperty: true })),
  ...[...document.querySelectorAll(".chip, .tag, .key, .cell-value")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1),
].map((each) => `${each.className}: ${each.textContent}`)"""
# Texts of the corner that are cut at its end, or higher than the header.
CUT_IN_CORNER = """async (texts) => {
  const app = document.querySelector("script[type=module]").src;
  const { showFeed } = await import(new URL("feed.js", app));
  const corner = document.getElementById("feed-text");
  const header = document.querySelector("header");
  return texts.filter((outage) => {
    showFeed({ outage });
    return corner.scrollWidth > corner.clientWidth
      || corner.scrollHeight > header.clientHeight
      || header.scrollWidth > header.clientWidth;
  });
}"""
HELD = ".held-row:visible:has(> .dot) .held-why"
WEB = "#/shop/Deployment/web"
WORKER = "#/batch/Deployment/worker"
QUEUE = "#/jobs/Deployment/consumer"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def played() -> Played:
    stage = Played()
    await stage.play(1300.0)
    return stage


@pytest_asyncio.fixture(loop_scope="module")
async def url(played: Played) -> AsyncIterator[str]:
    async with listening(played.page.desk, 0) as found:
        yield found


@pytest.mark.parametrize(
    ("workload", "name", "panels", "sentence"),
    [
        pytest.param(WEB, "web", {"load", "replicas", "cpu", "memory"}, "so the size", id="shop"),
        pytest.param(WORKER, "worker", {"cpu", "memory"}, "app cpu: 110m", id="worker"),
        pytest.param(QUEUE, "consumer", {"load", "replicas", "cpu", "memory"}, "size", id="queue"),
    ],
)
async def test_each_scene_shows_its_timeline_and_its_reason(
    chromium: Browser, url: str, workload: str, name: str, panels: set[str], sentence: str
) -> None:
    async with opened(chromium, url + workload) as seen:
        page = seen.page
        await expect(page.locator("h1")).to_have_text(name)
        await expect(page.locator(".panel:not([hidden]) canvas").first).to_be_visible()
        shown = await page.locator(".panel:not([hidden])").evaluate_all(
            "all => all.map(each => each.dataset.kind)"
        )
        assert set(shown) == panels
        await expect(page.locator(".why-text")).to_contain_text(sentence)
        assert await page.evaluate(PAINTED, shown[0]) > 500
        assert seen.errors == []


async def test_a_decision_clicked_on_the_timeline_is_told_in_words(
    chromium: Browser, url: str, played: Played
) -> None:
    async with opened(chromium, url + WEB) as seen:
        page = seen.page
        pin = page.locator(".pin[data-direction=down]").first
        key = await pin.get_attribute("data-key")
        title = (await pin.get_attribute("title") or "").split("  ")[1]
        await pin.click()
        await expect(page.locator(".words h2")).to_have_text(title)
        await expect(page.locator(f'.decision[data-key="{key}"]')).to_have_attribute(
            "aria-pressed", "true"
        )
        steps = await page.locator(".steps li").all_inner_texts()
    from hpa.explain.explanation import explain

    at = float((key or "").removeprefix("scale-").removesuffix("-web"))
    trace = played.traces.at(("shop", "web"), at)
    assert trace is not None
    assert tuple(steps) == explain(trace).sentences


async def test_the_oldest_change_on_the_line_is_told_in_words(
    chromium: Browser, played: Played, url: str
) -> None:
    await played.play(2000.0)  # more changes than traces are kept
    async with opened(chromium, url + WEB) as seen:
        oldest = seen.page.locator(".decision").last
        await oldest.click()
        await expect(seen.page.locator(".steps")).to_contain_text("http_requests_per_second is ")


async def test_what_if_replays_the_load_that_is_drawn(
    chromium: Browser, url: str, played: Played
) -> None:
    replaying = asyncio.create_task(played.page._what_if.run())
    async with opened(chromium, url + WEB) as seen:
        page = seen.page
        tab = page.get_by_role("button", name="What if")
        await tab.click()
        table = page.locator(".whatif table")
        await expect(table).to_be_visible(timeout=60_000)
        await expect(page.locator(".charts")).to_be_hidden()
        heads = await table.locator("tbody th").all_inner_texts()
        assert heads[0] == "today's"
        assert heads[-1] == "oracle"
        assert any(head.startswith("today's ×") for head in heads)
        hours = [float(each) for each in await table.locator("td:nth-child(2)").all_inner_texts()]
        assert min(hours) > 0
        assert await page.evaluate(CONTRAST) == []
        await tab.click()
        await expect(page.locator(".charts")).to_be_visible()
        await page.evaluate(f"location.hash = '{WORKER}'")
        await expect(page.locator("h1")).to_have_text("worker")
        await expect(tab).to_be_hidden()  # no HPA scales it
        assert seen.errors == []
    replaying.cancel()


async def test_dark_and_light_follow_the_system_and_the_toggle(chromium: Browser, url: str) -> None:
    async with opened(chromium, url, scheme="dark") as seen:
        page = seen.page
        assert await _lightness(page) < 60
        theme = page.get_by_role("button", name=re.compile("Colour theme"))
        await theme.click()  # auto -> light
        await expect(theme).to_have_text("Light")
        assert await _lightness(page) > 200
        await page.reload()
        assert await _lightness(page) > 200  # it was remembered
        await theme.click()
        await expect(theme).to_have_text("Dark")
        assert await _lightness(page) < 60


async def test_contrast_of_words_is_enough_in_both_themes(chromium: Browser, url: str) -> None:
    for scheme in ("light", "dark"):
        async with opened(chromium, url + WEB, scheme=scheme) as seen:  # type: ignore[arg-type]
            await seen.page.wait_for_selector(".decision")
            for state in ("steady", "changing", "waiting", "failing", "idle"):
                await seen.page.evaluate(STATE, state)
                assert await seen.page.evaluate(CONTRAST) == [], (scheme, state)


async def test_a_workload_that_is_not_there_shows_nothing_of_the_one_before(
    chromium: Browser, url: str
) -> None:
    async with opened(chromium, url + WEB) as seen:
        await seen.page.wait_for_selector(".decision")
        await seen.page.evaluate("location.hash = '#/shop/Deployment/gone'")
        await expect(seen.page.locator(".chip")).to_have_text("not found")
        assert await seen.page.locator(".decision").count() == 0
        assert await seen.page.locator(".panel:visible").count() == 0
        values = await seen.page.locator(".cell-value").all_inner_texts()
        assert set(values) <= {"–"}


@pytest.mark.parametrize("address", ["#/shop", "#/shop/web", "#/%zz", "#/a/b/c"])
async def test_an_address_that_names_no_workload_says_so(
    chromium: Browser, url: str, address: str
) -> None:
    async with opened(chromium, url + address) as seen:
        await expect(seen.page.locator(".chip")).to_have_text("not found")
        said = seen.page.locator(".why-text")
        await expect(said).to_have_text(re.compile("names no workload|is not scaled or sized here"))
        await expect(seen.page.locator("#feed-text")).to_contain_text("queries/s")


async def test_a_load_reads_as_kubectl_writes_it_and_a_hold_is_no_change(
    chromium: Browser, url: str
) -> None:
    async with opened(chromium, url + WEB) as seen:
        load = seen.page.locator(".row", has_text="web").locator(".row-load")
        await expect(load).to_have_text(re.compile(r"^[\d.]+/12$"))
        for item in await seen.page.locator(".decision").all():
            why = await item.locator(".decision-why").inner_text()
            is_change = await item.get_attribute("data-direction") in ("up", "down")
            assert not why.startswith("Held" if is_change else "Limited"), why


async def test_values_that_are_old_look_old(chromium: Browser, played: Played, url: str) -> None:
    page = played.page
    async with opened(chromium, url + WORKER) as seen:
        cell = seen.page.locator(".cell", has_text="Memory a pod")
        await expect(cell.locator(".cell-value")).not_to_have_attribute("data-old", "true")
        (workload,) = [each for each in page.board if each.id[2] == "worker"]
        for second in range(3):
            at = played.now + 1.0 + second
            page.board.used(workload, at, (None,) * 4, (None,) * 4)
        await expect(cell.locator(".cell-value")).to_have_attribute("data-old", "true")
        await expect(cell.locator(".cell-about")).to_contain_text("as of ")
        assert await seen.page.evaluate(CONTRAST) == []


async def test_what_if_can_be_read_on_a_narrow_screen(
    chromium: Browser, url: str, played: Played
) -> None:
    replaying = asyncio.create_task(played.page._what_if.run())
    async with opened(chromium, url + WEB, size=(390, 760)) as seen:
        await seen.page.get_by_role("button", name="What if").click()
        table = seen.page.locator(".whatif table")
        await expect(table).to_be_visible(timeout=60_000)
        width = await seen.page.locator(".whatif").evaluate("all => all.clientWidth")
        assert await table.evaluate("one => one.scrollWidth") <= width
    replaying.cancel()


async def test_the_overview_says_in_words_what_each_dot_means(chromium: Browser, url: str) -> None:
    async with opened(chromium, url) as seen:
        await seen.page.wait_for_selector(".rows a")
        for row in await seen.page.locator(HELD).all_inner_texts():
            assert row.startswith(("waiting: ", "failing: ", "changing: ")), row
        quiet = await seen.page.get_by_text("Nothing waits").is_visible()
        states = await seen.page.locator(".rows .dot").evaluate_all(
            "(all) => all.map((each) => each.dataset.state)"
        )
        assert not quiet or set(states) <= {"steady", "idle"}


async def test_the_times_of_a_short_axis_differ(chromium: Browser, url: str) -> None:
    async with opened(chromium, url + WEB) as seen:
        await seen.page.wait_for_selector(".decision")
        for span in (60, 120, 600, 3600):
            ticks = await seen.page.evaluate(TICKS, span)
            assert len(set(ticks)) == len(ticks), ticks


@pytest.mark.parametrize("width", [1440, 390])
async def test_nodes_are_shown_with_usage_requests_and_ballast(
    chromium: Browser, url: str, width: int
) -> None:
    async with opened(chromium, url, size=(width, 760)) as seen:
        table = seen.page.get_by_role("region", name="Nodes")
        await expect(table).to_be_visible()
        rows = [await row.locator("th, td").all_inner_texts()
                for row in await table.locator("tbody tr").all()]  # fmt: skip
        assert rows == [
            ["by-usage", "Loaded", "2 cores, 32 GiB", "6 cores", "2 cores", "2 cores", "6 cores",
             "10 cores", "1 GiB", "26.2 GiB", "1 MiB", "1 MiB", "32 GiB"],
            ["by-requests", "Low usage", "999m, 32 GiB", "1 core", "7 cores", "9 cores", "1m",
             "10 cores", "1 GiB", "26.2 GiB", "1 MiB", "1 MiB", "32 GiB"],
            ["unknown", "Stale usage", "9 cores, 32 GiB", "–", "–", "1 core", "1m", "10 cores",
             "–", "–", "1 MiB", "1 MiB", "32 GiB"],
        ]  # fmt: skip
        # State and the largest pod are seen without scrolling the table, at 1440 px all of it.
        for cell in range(2 if width == 390 else 12):
            place = await table.locator("tbody tr:first-child td").nth(cell).bounding_box()
            assert place is not None
            assert place["x"] + place["width"] <= width
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert await seen.page.evaluate(CONTRAST) == []
        assert await seen.page.evaluate(NAMELESS) == []
        assert seen.errors == []


async def test_everything_can_be_done_by_keyboard(chromium: Browser, url: str) -> None:
    async with opened(chromium, url) as seen:
        page = seen.page
        press = page.keyboard.press
        await press("/")
        await expect(page.locator("#search")).to_be_focused()
        await page.keyboard.type("shop")
        await expect(page.locator("#found")).to_have_text("1–1 of 1")
        await press("ArrowDown")
        await press("Enter")
        await expect(page.locator("h1")).to_have_text("web")
        await expect(page.locator("main")).to_be_focused()
        reached: set[str] = set()
        for _ in range(40):
            await press("Tab")
            reached.add(await page.evaluate("document.activeElement.className"))
            if "decision" in reached:
                break
        assert {"filter", "decision"} <= reached
        first = await page.locator(".words h2").inner_text()
        await press("ArrowDown")
        await press("ArrowDown")
        await expect(page.locator(".words h2")).not_to_have_text(first)
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        await press("Escape")
        await expect(page.locator("h1")).to_have_text("Every size has a reason")


async def test_a_screen_reader_finds_names_states_and_the_table(
    chromium: Browser, url: str
) -> None:
    async with opened(chromium, url + WEB) as seen:
        page = seen.page
        await expect(page.get_by_role("navigation", name="Workloads")).to_be_visible()
        link = page.get_by_role("link", name=re.compile(r"shop Deployment web, waiting: .+"))
        await expect(link).to_have_attribute("aria-current", "page")
        picture = page.get_by_role("img", name=re.compile("http_requests_per_second.* Load7.67"))
        await expect(picture).to_be_visible()
        await page.get_by_role("button", name="Table").click()
        table = page.get_by_role("table").first
        await expect(table.locator("thead th")).to_have_text(["Time", "Load", "Target", "Replicas"])
        await expect(table.locator("tbody tr").first.locator("td").nth(1)).to_have_text("12")
        assert await table.locator("tbody tr").count() == 60
        nameless = await page.evaluate(NAMELESS)
        assert nameless == []


async def test_it_loads_nothing_from_elsewhere_and_changes_nothing(
    chromium: Browser, url: str
) -> None:
    async with opened(chromium, url + WEB) as seen:
        await seen.page.wait_for_selector(".decision")
        await seen.page.wait_for_timeout(2500)  # one more poll
        assert seen.strangers == []
        assert seen.methods == {"GET"}
        assert await seen.page.evaluate("window.violations") == []
        assert seen.errors == []


async def test_a_name_from_the_cluster_is_text_and_never_markup(
    chromium: Browser, played: Played, url: str
) -> None:
    name = "<img src=x onerror=window.owned=1>"
    played.shop.hpa = _renamed(played, name)
    played.shop.step(played.traces, played.now + 1.0)
    async with opened(chromium, url) as seen:
        await expect(seen.page.locator(".row-name").filter(has_text="<img")).to_be_visible()
        assert await seen.page.evaluate("window.owned") is None
        assert await seen.page.locator(".row img").count() == 0


async def test_an_inline_script_does_not_run(chromium: Browser, url: str) -> None:
    async with opened(chromium, url) as seen:
        await seen.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'),"
            " { textContent: 'window.owned = 1' }))"
        )
        assert await seen.page.evaluate("window.owned") is None
        assert any("script-src" in each for each in await seen.page.evaluate("window.violations"))


async def test_a_lost_connection_is_said_and_recovered_from(
    chromium: Browser, played: Played
) -> None:
    async with listening(played.page.desk, 0) as url:
        port = int(url.split(":")[2].split("/")[0])
        entered = opened(chromium, url + WEB)
        seen = await entered.__aenter__()
    try:
        text = seen.page.locator("#feed-text")
        await expect(text).to_contain_text("connection lost")
        await expect(seen.page.locator("h1")).to_have_text("web")  # what was known stays
        async with listening(played.page.desk, port):
            await expect(text).to_contain_text("queries/s")
    finally:
        await entered.__aexit__(None, None, None)


async def test_a_process_that_hangs_is_said_and_recovered_from(
    chromium: Browser, played: Played
) -> None:
    async with listening(played.page.desk, 0) as url, opened(chromium, url + WEB) as seen:
        text = seen.page.locator("#feed-text")
        await expect(text).to_contain_text("queries/s")
        await seen.page.route("**/api/feed*", lambda _route: None)  # never answered
        await expect(text).to_contain_text("connection lost", timeout=15_000)
        await seen.page.unroute("**/api/feed*")
        await expect(text).to_contain_text("queries/s", timeout=15_000)


async def test_nothing_moves_while_the_cluster_does(
    chromium: Browser, played: Played, url: str
) -> None:
    async with opened(chromium, url + WEB) as seen:
        await seen.page.wait_for_selector(".decision")
        for _ in range(10):
            await played.play(30.0)
            await seen.page.wait_for_timeout(700)
        clock = await seen.page.locator(".decision time").first.inner_text()
        assert clock > "11:28:25"  # newer decisions have come
        assert _tallied(await seen.shifts()) == {}


async def test_ten_thousand_hpas_are_searched_and_paged_without_a_shift(chromium: Browser) -> None:
    made = await asyncio.to_thread(crowd, 10_000)
    async with listening(made.page.desk, 0) as url, opened(chromium, url) as seen:
        page = seen.page
        found = page.locator("#found")
        await expect(found).to_have_text("1–25 of 10,000")
        await expect(page.locator(".tile-number").first).to_have_text("10,000")
        await page.get_by_role("button", name="Next page").click()
        await expect(found).to_have_text("26–50 of 10,000")
        await page.locator("#search").fill("team-77 app-0077")
        await expect(found).to_have_text("1–1 of 1")
        await page.locator(".row").first.click()
        await expect(page.locator("h1")).to_have_text("app-0077")
        await page.locator("#search").fill("")
        await page.get_by_role("button", name=re.compile("Failing")).click()
        await expect(page.locator(".row[href*=Deployment] .dot").first).to_have_attribute(
            "data-state", "failing"
        )
        await page.wait_for_timeout(2500)
        assert _tallied(await seen.shifts()) == {}
        # The measure itself: what does move is seen.
        await page.evaluate("document.body.prepend(Object.assign(document.createElement('p'),"
                            " { textContent: 'pushed' }))")  # fmt: skip
        await page.wait_for_timeout(700)
        assert (await seen.shifts())[0] > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1280, 390, 360, 320])
async def test_a_window_of_any_width_scrolls_down_and_never_sideways(
    chromium: Browser, url: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    for fragment in ("", WEB, WORKER):
        async with opened(chromium, url + fragment, size=(width, 760), scheme=scheme) as seen:
            await seen.page.wait_for_timeout(300)
            wide = await seen.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, fragment
            # What each line of a panel means is said beside it, and no chip is cut.
            cut = await seen.page.evaluate(CUT)
            assert cut == [], fragment


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1280, 900])
async def test_the_corner_says_every_outage_whole(
    chromium: Browser, url: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    texts = [
        f"{refusals.failure(kind).message} (since 2026-11-26T09:19:26Z)" for kind in get_args(Kind)
    ]
    async with opened(chromium, url, size=(width, 760), scheme=scheme) as seen:
        assert await seen.page.evaluate(CUT_IN_CORNER, texts) == []


def _renamed(played: Played, name: str) -> object:
    from msgspec import structs

    hpa = played.shop.hpa
    return structs.replace(hpa, target=structs.replace(hpa.target, name=name))


def _tallied(shifts: tuple[float, Sequence[str]]) -> dict[str, int]:
    total, moved = shifts
    return dict(Counter(moved)) if total else {}


async def _lightness(page: Page) -> int:
    colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(each) for each in re.findall(r"\d+", colour)[:3]) // 3
