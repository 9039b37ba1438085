"""Every command of the migration guides, on the real plane.

That of prometheus-adapter is run by ``test_migration``, against the original's record.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.docs import guides

pytestmark = pytest.mark.timeout(240)


class OnPlane:
    """The plane as the guides take it."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self.plane, self.directory = plane, directory
        self.kubeconfig = plane.admin_kubeconfig

    def route(self, group: str, version: str, port: int) -> None:
        namespace, service = "kube-system", "podscale"
        self.plane.expose(namespace, service, port)
        self.plane.apply({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": True,
                "service": {"name": service, "namespace": namespace, "port": port},
            },
        })  # fmt: skip


def test_the_commands_of_the_guides_do_what_they_say(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=1))
    for guide in (guides.in_tree_hpa, guides.keda, guides.upstream_vpa):
        directory = tmp_path / guide.__name__
        directory.mkdir()
        guide(OnPlane(plane, directory))
        plane.kubectl("delete", "deployment,hpa", "--all", "-n", "shop", "--ignore-not-found")
