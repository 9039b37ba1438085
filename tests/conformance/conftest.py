"""What the conformance ring says at its end: how many cases each deliberate difference is of."""

import os

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print rule by rule; one that speaks of no case stands out."""
    from tests.conformance.deviation_counts import counts

    for product, rules in counts().items():
        shown = ", ".join(f"{rule} {count or 'NONE'}" for rule, count in rules.items())
        terminalreporter.write_line(f"deviations of {product}: {shown}")
    if elsewhere := os.environ.get("PODSCALE_CASES"):
        terminalreporter.write_line(f"cases of {elsewhere}")
