"""``python -m tests.browser.pictures``: the pictures of the documents, drawn anew.

The scenes are scripted, so the same page gives the same picture but for fonts.
"""

import asyncio
from pathlib import Path
from typing import Literal

from podscale.page.part import listening
from tests.browser.chromium import browser, opened
from tests.browser.scenes import Played

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 200_000
SIZE = (1440, 900)
Scheme = Literal["light", "dark"]
PICTURES: tuple[tuple[str, str, Scheme], ...] = (
    ("page-overview", "#/", "light"),
    ("page-shop", "#/shop/Deployment/web", "light"),
    ("page-worker", "#/batch/Deployment/worker", "dark"),
    ("page-queue", "#/jobs/Deployment/consumer", "light"),
)


async def draw() -> None:
    """Write every picture; raises ``ValueError`` for one that is too large."""
    played = Played()
    await played.play(1300.0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with listening(played.page.desk, 0) as url, browser() as chromium:
        for name, fragment, scheme in PICTURES:
            async with opened(chromium, url + fragment, size=SIZE, scheme=scheme) as seen:
                await seen.page.wait_for_timeout(1500)
                path = FOLDER / f"{name}.png"
                await seen.page.screenshot(path=path)
                size = path.stat().st_size
                print(f"{path.name}: {size // 1024} KiB")
                if size > MOST_BYTES:
                    raise ValueError(f"{path.name} has {size} bytes")


if __name__ == "__main__":
    asyncio.run(draw())
