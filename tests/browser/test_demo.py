"""The page as a stranger first sees it: over the running demo, all five stories."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, expect

from tests.browser.chromium import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
_PATIENCE_S = 60.0


@pytest_asyncio.fixture(loop_scope="module")
async def demo(tmp_path: Path) -> AsyncIterator[str]:
    """The page's URL of a demo that runs twenty times as fast."""
    said = tmp_path / "demo.err"
    with said.open("wb") as errors:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "podscale", "demo", "--speed", "20",
            stdout=asyncio.subprocess.DEVNULL, stderr=errors, start_new_session=True,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(_PATIENCE_S):
            url = ""
            while not url:
                assert child.returncode is None, said.read_text()
                await asyncio.sleep(0.2)
                found = re.search(r"Page: (http\S+)", said.read_text())
                url = found.group(1) if found else ""
            await _until_told(url)
        yield url
    finally:
        child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(child.wait(), 20.0)
        # The subprocess transport is closed by the loop's next turn.
        await asyncio.sleep(0)


async def _until_told(url: str) -> None:
    async with ClientSession() as session:
        while True:
            async with session.get(f"{url}api/workloads") as answer:
                listing = msgspec.json.decode(await answer.read())
            changed = {each["id"].split("/")[2] for each in listing["recent"]}
            if {"web", "worker", "consumer"} <= changed:
                return
            await asyncio.sleep(0.5)


async def test_all_five_stories_are_told_on_the_page(chromium: Browser, demo: str) -> None:
    async with opened(chromium, demo) as seen:
        page = seen.page
        await expect(page.locator("#feed-text")).to_contain_text("rules ok")
        rows = page.locator(".row[href*=Deployment]")
        await expect(rows).to_have_count(4)
        nodes = page.get_by_role("region", name="Nodes")
        await expect(nodes.locator("tbody tr")).to_have_count(3)
        links = {each.split("/")[3]: each for each in await rows.evaluate_all(_HREFS)}
        for name, panels in (("web", 4), ("worker", 2), ("consumer", 4), ("api", 4)):
            await page.locator(f'.row[href="{links[name]}"]').click()
            await expect(page.locator("h1")).to_have_text(name)
            await expect(page.locator(".panel:not([hidden]) canvas")).to_have_count(panels)
            await expect(page.locator(".decision").first).to_be_visible()
            await page.locator(".decision:not([data-direction=held])").first.click()
            await expect(page.locator(".steps li").first).to_be_visible()
        assert seen.strangers == []
        assert seen.errors == []


_HREFS = "all => all.map(each => each.getAttribute('href'))"
