"""What the model keeps of a pod and of a VPA."""

import numpy as np
from msgspec import Struct

from vpa.model.api.objects import TargetRef, Vpa, is_off
from vpa.model.api.policy import Mistake
from vpa.model.estimation.annotations import VpaSettings
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import AggregateKey
from vpa.model.samples.container_rows import OpenWindow
from vpa.model.samples.membership import Labels

ContainerKey = tuple[str, str, str]  # namespace, pod, container


class PodEntry(Struct, frozen=True):
    """A pod as the model knows it."""

    labels: Labels
    containers: tuple[str, ...]
    is_active: bool  # neither succeeded nor failed


class VpaEntry(Struct):
    """A VPA in the model: its object, what it sets for itself, what it has gathered."""

    vpa: Vpa
    settings: VpaSettings
    mistakes: tuple[Mistake, ...]
    columns: dict[str, dict[AggregateKey, int]]  # by container name
    initial: dict[str, int]  # columns that checkpoints filled
    pending: dict[str, dict[str, OpenWindow]]  # open windows of checkpoints, by pod
    is_resolved: bool = True  # whether its target is known now

    def group(self, container: str) -> Columns:
        """Return all columns of one container name, the checkpoint's last."""
        own = list(self.columns.get(container, {}).values())
        if container in self.initial:
            own.append(self.initial[container])
        return np.array(own, dtype=np.intp)

    def containers(self) -> list[str]:
        """Return the container names that are known, those with mode Off left out."""
        policy = self.vpa.spec.resource_policy
        names = sorted({*self.columns, *self.initial})
        return [name for name in names if not is_off(policy, name)]


class ParkedCheckpoints(Struct, frozen=True):
    """What checkpoints brought of a VPA that is not in the model now, as ``VpaEntry`` has it."""

    since_s: float
    target: TargetRef | None  # whose history it is
    initial: dict[str, int]
    pending: dict[str, dict[str, OpenWindow]]

    def is_of(self, target: TargetRef | None) -> bool:
        """Return whether it is the history of what ``target`` names, in whatever version."""
        before = self.target
        if before is None or target is None:
            return before is target
        return (before.kind, before.name) == (target.kind, target.name)
