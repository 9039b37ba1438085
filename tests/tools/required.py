"""A program a test cannot do without: its path, or a skip that says how to get it."""

import importlib.util
import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.tools.cache import find
from tests.tools.needs import refuse
from tests.tools.programs import module_of


def require(name: str) -> Path:
    """Return the program's path; skip the test where it is absent, fail under ``CI=true``."""
    refuse(name)
    path = find(name)
    if path is None:
        absent(f"{name} is not built; run: python -m tests.tools build {module_of(name).name}")
    return path


def require_package(name: str) -> None:
    """Skip the test where a package of ``requirements-real.lock`` is absent, fail in CI."""
    refuse(name)
    if importlib.util.find_spec(name) is None:
        absent(f"{name} is not installed; run: make setup-real")


def absent(reason: str) -> NoReturn:
    """Skip the test, fail it under ``CI=true``."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
