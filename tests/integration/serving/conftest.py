"""What every test of the server stands on: its keys, its API server, its log."""

import io
from collections.abc import AsyncIterator

import pytest
from blockbuster import blockbuster_ctx

from podscale.serving.monitoring.logs import Verbosity, configure
from tests.unit.serving.kit import Pki, ScriptedApi


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    configure("json", Verbosity(), stream)
    return stream


@pytest.fixture(autouse=True)
async def never_blocks() -> AsyncIterator[None]:
    with blockbuster_ctx(scanned_modules=["podscale"]) as buster:
        # A certificate is loaded from a memfd: no disk is involved.
        buster.functions["io.BufferedWriter.write"].can_block_in("certificates/tls.py", {"_load"})
        for name in ("os.stat", "io.TextIOWrapper.read", "io.BufferedReader.read"):
            if name in buster.functions:  # the source lines of a traceback that is logged
                buster.functions[name].can_block_in("linecache.py", {"checkcache", "updatecache"})
        yield


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()
