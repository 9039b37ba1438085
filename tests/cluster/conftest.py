"""The control planes of the cluster ring: one for the session, private ones for a test."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.cluster.plane import Plane
from tests.cluster.settings import SCALE_TO_ZERO, PlaneSettings
from tests.integration.scraping import exporter, prometheus
from tests.tools.failure import attach_logs

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
    """etcd as it is: an idle API server hears every 10 minutes how far history has come."""
    return ()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory, etcd_args: Sequence[str]) -> Iterator[Plane]:
    """The plane that tests share. Take a namespace of your own and leave the rest as it was."""
    settings = PlaneSettings(feature_gates=SCALE_TO_ZERO, etcd_args=etcd_args)
    with Plane(tmp_path_factory.mktemp("plane"), settings) as shared:
        yield shared


@pytest.fixture
def private_plane(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[PlaneSettings], Plane]]:
    """Starts a plane with other settings, or one that the test is going to hurt."""
    with ExitStack() as planes:

        def start(settings: PlaneSettings) -> Plane:
            return planes.enter_context(Plane(tmp_path_factory.mktemp("private"), settings))

        yield start


pytest_runtest_makereport = attach_logs
