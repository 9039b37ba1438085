"""The attacks ring shares the planes, exporter and Prometheus of the cluster ring."""

from tests.cluster.conftest import (
    exporter,
    plane,
    private_plane,
    prometheus,
    pytest_runtest_makereport,
)

__all__ = ["exporter", "plane", "private_plane", "prometheus", "pytest_runtest_makereport"]
