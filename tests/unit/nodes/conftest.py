"""Two nodes that are used beyond what their pods request."""

import pytest

from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import OLD


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    for name in ("a", "b"):
        made.node(name)
        made.ballast(name)
        made.pod(f"web-{name}", name, "2", started=OLD)
        made.usage[name] = (6.0, GI)
    return made
