"""The ends of the programs' logs in the report of a failed test."""

from collections.abc import Generator
from typing import Protocol, runtime_checkable

import pytest


@runtime_checkable
class HasLogs(Protocol):
    """A fixture's value that can say what its programs wrote last."""

    def tails(self) -> str: ...


@pytest.hookimpl(wrapper=True)
def attach_logs(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A ``pytest_runtest_makereport`` that adds the logs of every fixture that has some."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, HasLogs):
                report.sections.append((f"logs of {name}", value.tails()))
    return report
