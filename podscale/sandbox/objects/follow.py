"""Following tables from inside the process: which objects changed since the last look."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from podscale.sandbox.objects.storage import Storage, StoredChange


async def changes(
    storage: Storage, names: Sequence[tuple[str, str]]
) -> AsyncIterator[list[StoredChange]]:
    """Yield everything there is as ADDED, then batches of changes, over several tables.

    A batch that history no longer has is replaced by everything there is.
    """
    tables = [storage.table(*name) for name in names]
    positions = [table.end() for table in tables]
    present = [
        [StoredChange("ADDED", held, None) for held in table.objects.values()] for table in tables
    ]
    yield [change for found in present for change in found]
    while True:
        waits = [table.changed() for table in tables]
        batch: list[StoredChange] = []
        for place, table in enumerate(tables):
            news = table.since(positions[place])
            positions[place] = table.end()
            if news is None:
                news = [StoredChange("ADDED", held, None) for held in table.objects.values()]
            batch += news
        if batch:
            yield batch
            await asyncio.sleep(0)
            continue
        tasks = [asyncio.ensure_future(wait.wait()) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
