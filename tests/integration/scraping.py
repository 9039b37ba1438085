"""Fixtures: pretend pods and the Prometheus that scrapes them, for any ring's conftest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    """Pretend pods, none at first."""
    with Exporter(tmp_path) as running:
        yield running


@pytest.fixture
def prometheus(tmp_path: Path, exporter: Exporter) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes every target of ``exporter`` each second."""
    with PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as running:
        yield running
