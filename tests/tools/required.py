"""A program a test cannot do without: its path, or a skip that says how to get it."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tests.tools.cache import find
from tests.tools.programs import module_of


def require(name: str) -> Path:
    """Return the program's path; skip the test where it is absent, fail under ``CI=true``."""
    path = find(name)
    if path is None:
        absent(f"{name} is not built; run: python -m tests.tools build {module_of(name).name}")
    return path


def absent(reason: str) -> NoReturn:
    """Skip the test, fail it under ``CI=true``."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
