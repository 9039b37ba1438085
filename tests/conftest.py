"""Settings of all rings."""

import asyncio

# looptime's plugin asks for the current event loop around every test. Until one was set, the
# policy makes one on demand, which nobody closes: a ResourceWarning in some later test.
asyncio.set_event_loop(None)
