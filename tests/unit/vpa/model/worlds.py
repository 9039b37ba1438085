"""Small worlds for tests of the model."""

import numpy as np

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from podscale.kube.objects.vpa import Vpa, decode
from vpa.model.amounts import RESOURCES
from vpa.model.cluster import ClusterModel
from vpa.model.samples.membership import VpaKey

NOW = 1_772_409_600.0  # 2026-03-02T00:00:00Z
WEB = VpaKey("shop", "web")


def vpa(name: str = "web", annotations: dict[str, str] | None = None, **spec: object) -> Vpa:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return decode(
        {
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations or {}},
            "spec": {"targetRef": target, **spec},
        },
        Vpa,
    )


def web(cluster: ClusterModel, *pods: str, now: float = NOW, version: str = "v1") -> None:
    """Put the VPA and pods of one container each."""
    cluster.put_vpa(vpa(), selector.parse("app=web"), now)
    for pod in pods:
        cluster.put_pod("shop", pod, {"app": "web", "version": version}, ["app"], now)


def counts(cluster: ClusterModel) -> tuple[float, ...]:
    """Return how many samples of CPU and of memory were taken."""
    return tuple(float(cluster.aggregates.span(each).samples.sum()) for each in RESOURCES)


def usage(
    at: float,
    cores: float = float("nan"),
    memory: float = float("nan"),
    pods: tuple[str, ...] = ("web-0",),
) -> ContainerColumns:
    size = len(pods)
    return ContainerColumns(
        ["shop"] * size,
        list(pods),
        ["app"] * size,
        np.full(size, cores),
        np.full(size, memory),
        np.full(size, at),
        at,
    )
