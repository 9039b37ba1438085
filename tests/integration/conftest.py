"""What the integration ring runs against: real processes on the loopback."""

from tests.integration.scraping import exporter, prometheus
from tests.tools.failure import attach_logs

__all__ = ["exporter", "prometheus", "pytest_runtest_makereport"]

pytest_runtest_makereport = attach_logs
