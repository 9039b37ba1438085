"""The attacks ring shares the planes, exporter and Prometheus of the cluster ring."""

from collections.abc import Sequence

import pytest

from tests.cluster.conftest import (
    exporter,
    plane,
    private_plane,
    prometheus,
    pytest_runtest_makereport,
)

__all__ = [
    "etcd_args",
    "exporter",
    "plane",
    "private_plane",
    "prometheus",
    "pytest_runtest_makereport",
]


@pytest.fixture(scope="session")
def etcd_args() -> Sequence[str]:
    """etcd as kubeadm starts it: bookmarks come every 5 s, and not by its own default."""
    return ("--watch-progress-notify-interval=5s",)
