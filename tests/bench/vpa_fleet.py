"""A fleet of VPAs in the model, with noisy usage, for the benches: no I/O, no objects beyond
what the model keeps.
"""

import numpy as np

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from podscale.kube.objects.vpa import Vpa, decode
from vpa.model.cluster import ClusterModel
from vpa.model.samples.membership import VpaKey

NAMESPACES = 50
CONTAINERS = ("app", "side")
START = 1_772_409_600.0


class Fleet:
    """``vpas`` VPAs over ``pods`` pods each, two containers a pod."""

    def __init__(self, vpas: int, pods: int, seed: int = 7) -> None:
        self.cluster = ClusterModel()
        self._random = np.random.default_rng(seed)
        self._namespaces: list[str] = []
        self._pods: list[str] = []
        self._containers: list[str] = []
        for number in range(vpas):
            namespace, name = f"team-{number % NAMESPACES}", f"web-{number}"
            raw = {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"targetRef": {"kind": "Deployment", "name": name}},
            }
            self.cluster.put_vpa(decode(raw, Vpa), selector.parse(f"app={name}"), START)
            labels = {"app": name, "tier": "backend", "pod-template-hash": "6d4f9"}
            for pod in range(pods):
                self.cluster.put_pod(namespace, f"{name}-{pod}", labels, CONTAINERS, START)
                for container in CONTAINERS:
                    self._namespaces.append(namespace)
                    self._pods.append(f"{name}-{pod}")
                    self._containers.append(container)
        size = len(self._pods)
        self._cores = np.exp(self._random.normal(np.log(0.2), 1.0, size))
        self._memory = np.exp(self._random.normal(np.log(2e8), 1.0, size))

    @property
    def keys(self) -> list[VpaKey]:
        return list(self.cluster.vpas)

    def usage(self, minute: int) -> ContainerColumns:
        """Return one sample of every container."""
        size, at = len(self._pods), START + minute * 60.0
        return ContainerColumns(
            self._namespaces,
            self._pods,
            self._containers,
            self._cores * np.exp(self._random.normal(0.0, 0.3, size)),
            self._memory * np.exp(self._random.normal(0.0, 0.05, size)),
            np.full(size, at),
            at,
        )
