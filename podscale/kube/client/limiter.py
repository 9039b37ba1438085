"""A client-side limit of requests, as client-go's flow control: ``qps`` with ``burst``."""

import asyncio


class Limiter:
    """A token bucket; those who wait are served in order."""

    def __init__(self, qps: float, burst: int) -> None:
        """``qps`` 0 or less is no limit; ``burst`` at least 1."""
        self._interval_s = 1.0 / qps if qps > 0 else 0.0
        self._slack_s = self._interval_s * (max(burst, 1) - 1)
        self._next = float("-inf")  # loop time at which the bucket would be just full enough
        self._head = asyncio.Lock()  # passed on in order

    async def wait(self) -> None:
        """Return when the next request may go out. Who gives up before has taken nothing."""
        if not self._interval_s:
            return
        async with self._head:
            now = asyncio.get_running_loop().time()
            # The virtual schedule runs ahead of the clock by at most the burst.
            due = max(self._next, now - self._slack_s)
            if due > now:
                await asyncio.sleep(due - now)
            self._next = due + self._interval_s
