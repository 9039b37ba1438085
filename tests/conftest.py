"""Settings of all rings."""

import asyncio
import signal
from collections.abc import Iterator

import pytest
import structlog

from tests.tools.needs import choose

# Before any ring imports them: others than the conformance ring do as well.
pytest.register_assert_rewrite(*(
    f"tests.conformance.{name}"
    for name in ("adapter_behaviour", "adapter_compare", "adapter_served", "hpa_checks",
                 "explain_hpa", "explain_vpa")
))  # fmt: skip

pytest_collection_modifyitems = choose

# looptime's plugin asks for the current event loop around every test. Until one was set, the
# policy makes one on demand, which nobody closes: a ResourceWarning in some later test.
asyncio.set_event_loop(None)
# What a shell starts in its background ignores Ctrl-C, and so does all that starts from there:
# the programs whose tests end them with it would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Let what a module's tests set about logs end with it: others read what is printed."""
    yield
    structlog.reset_defaults()
