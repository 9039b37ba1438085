"""Debian's Chromium, in a profile of its own, talking to nobody but the loopback."""

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Request, async_playwright

FLAGS = (
    "--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
LOOPBACK = ("127.0.0.1", "localhost")
# Counts what moves without anybody having touched anything.
SHIFTS = """
const nameOf = (node) => {
  const element = node?.nodeType === 1 ? node : node?.parentElement;
  if (!element) return "gone";
  return `${element.parentElement?.className}>${element.className || element.id}`;
};
window.shifts = 0;
window.shifted = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.shifts += entry.value;
    for (const { node } of entry.sources) window.shifted.push(nameOf(node));
  }
}).observe({ type: "layout-shift", buffered: true });
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def program() -> str:
    """Return Chromium's path; skip where there is none, fail under ``CI=true``."""
    found = shutil.which("chromium")
    if found is not None:
        return found
    reason = "no chromium; install it: apt-get install -y chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class Seen:
    """What a page did while it was open."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[Request] = []
        self.errors: list[str] = []
        page.on("request", self._asked)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)

    def _asked(self, request: Request) -> None:
        self.requests.append(request)

    def _said(self, message: object) -> None:
        if getattr(message, "type", "") == "error":
            self.errors.append(getattr(message, "text", ""))

    @property
    def strangers(self) -> list[str]:
        """Requests that left the loopback."""
        hosts = (urlsplit(each.url).hostname for each in self.requests)
        return [host or "" for host in hosts if host not in LOOPBACK]

    @property
    def methods(self) -> set[str]:
        return {each.method for each in self.requests}

    async def shifts(self) -> tuple[float, Sequence[str]]:
        """Return the sum of layout shifts, and what moved."""
        total = await self.page.evaluate("window.shifts")
        moved = await self.page.evaluate("window.shifted")
        return float(total), list(moved)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run one Chromium, with a profile of its own, while the block runs."""
    path = program()
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def opened(
    within: Browser,
    url: str,
    *,
    size: tuple[int, int] = (1440, 900),
    scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator[Seen]:
    """Open ``url`` as a visitor without a past while the block runs."""
    context = await within.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    try:
        await context.add_init_script(SHIFTS)
        page = await context.new_page()
        page.set_default_timeout(10_000)
        seen = Seen(page)
        await page.goto(url)
        await page.wait_for_selector(".row[href*=Deployment]", state="attached")
        yield seen
    finally:
        await context.close()
