"""Which tests run a program, and which of them a run leaves out.

A test says what it runs by ``@pytest.mark.needs("kubectl")``, or by taking a fixture of the
program's name. ``make test`` leaves these tests out, by the name of the program; ``make
test-real`` runs them alone; without ``$PODSCALE_PROGRAMS`` all of them run.
"""

import os

import pytest

from tests.outcome import LEFT_OUT
from tests.tools.programs import MODULES

PROGRAMS = "PODSCALE_PROGRAMS"
WITHOUT, WITH = "without", "with"
_FIXTURES = frozenset(program for module in MODULES for program in module.programs)


def needs(item: pytest.Item) -> tuple[str, ...]:
    """Return the programs, and packages of ``requirements-real.lock``, that a test runs."""
    named = [name for mark in item.iter_markers("needs") for name in mark.args]
    named += [name for name in getattr(item, "fixturenames", ()) if name in _FIXTURES]
    return tuple(sorted(set(named)))


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip those that need a program, or drop those that need none; pytest's hook."""
    form = os.environ.get(PROGRAMS)
    if form == WITHOUT:
        for item in items:
            if programs := needs(item):
                item.add_marker(pytest.mark.skip(LEFT_OUT + ", ".join(programs)))
    elif form == WITH:
        dropped = [item for item in items if not needs(item)]
        items[:] = [item for item in items if needs(item)]
        config.hook.pytest_deselected(items=dropped)


def refuse(name: str) -> None:
    """Fail a test that runs a program and does not say so, where programs are left out."""
    if os.environ.get(PROGRAMS) == WITHOUT:
        pytest.fail(f"it runs {name}: say @pytest.mark.needs({name!r})", pytrace=False)
