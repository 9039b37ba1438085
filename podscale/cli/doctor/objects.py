"""The objects of a cluster that the doctor lints, as far as it reads them. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from hpa.decide.api import reading
from hpa.decide.api.spec import HPA, Condition
from hpa.decide.api.wire import WireAutoscaler
from podscale.coordinate.pairing import VpaSide, vpa_side
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.wire import ObjectMeta, PartialObjectMetadata, decode
from podscale.kube.objects.pod import PodSpec
from vpa.model.api import objects as vpa_objects

Target = tuple[str, str, str]  # namespace, kind and name


class LintedHpa(Struct, frozen=True):
    """A HorizontalPodAutoscaler, and its annotations as they are written."""

    spec: HPA
    annotations: Mapping[str, str] = {}

    @classmethod
    def of(cls, written: WireAutoscaler) -> "LintedHpa":
        """Return the object; raises ``QuantityError``."""
        return cls(reading.read(written), written.metadata.annotations or {})

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"hpa/{self.spec.name} in {self.spec.namespace}"

    @property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions of its status, by type."""
        return {each.type: each for each in self.spec.status.conditions}

    @property
    def failure(self) -> str:
        """Since when its controller cannot decide, and why; ``""`` where it can."""
        found = self.conditions.get("ScalingActive")
        # ScalingDisabled is of an HPA whose target somebody scaled to zero.
        if found is None or found.status != "False" or found.reason == "ScalingDisabled":
            return ""
        since = f" since {rfc3339(found.transition_s)}" if found.transition_s else ""
        return f"{found.type} is False{since}: {found.reason}: {found.message}"

    def used_cpu(self, container: str) -> int | None:
        """Return the milli-cores that a pod or a container uses on average, as its status says."""
        for used in self.spec.status.metrics:
            if (used.name, used.container) == ("cpu", container):
                return used.average_value_milli
        return None


class LintedVpa(Struct, frozen=True):
    """A VerticalPodAutoscaler that has a target."""

    side: VpaSide
    cpu_milli: Mapping[str, int]  # that it recommends, by container

    def sized_cpu(self, container: str) -> int | None:
        """Return the milli-cores that it gives a container, or all of a pod for ``""``."""
        every = sum(self.cpu_milli.values())
        return (self.cpu_milli.get(container) if container else every) or None

    @property
    def changes(self) -> frozenset[str]:
        """The resources whose requests it sets."""
        if self.side.mode == "Off":
            return frozenset()
        if not self.side.policies:
            return frozenset(["cpu", "memory"])
        controlled = [p.controlled_resources for p in self.side.policies if p.mode != "Off"]
        return frozenset().union(*(("cpu", "memory") if c is None else c for c in controlled))


class _WrittenVpa(Struct, frozen=True):
    spec: Raw = Raw(b"{}")


class _Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class _WorkloadSpec(Struct, frozen=True):
    selector: Mapping[str, Any] | None = None
    template: _Template = _Template()


class LintedWorkload(Struct, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet."""

    spec: _WorkloadSpec = _WorkloadSpec()


class World(Struct):
    """The objects to look at."""

    hpas: list[LintedHpa] = []
    vpas: dict[Target, list[LintedVpa]] = {}
    workloads: dict[Target, LintedWorkload] = {}
    pods: dict[str, list[ObjectMeta]] = {}  # by namespace
    replica_sets: dict[tuple[str, str], ObjectMeta] = {}  # between a pod and its Deployment

    def add(self, kind: str, written: bytes | Raw) -> None:
        """Add what matters of an object; raises ``DecodeError`` and ``ValueError``."""
        meta = decode(written, PartialObjectMetadata).metadata
        if kind == "HorizontalPodAutoscaler":
            self.hpas.append(LintedHpa.of(decode(written, WireAutoscaler)))
        elif kind == "VerticalPodAutoscaler":
            self._add_vpa(meta, written)
        elif kind == "Pod":
            self.pods.setdefault(meta.namespace, []).append(meta)
        else:
            workload = decode(written, LintedWorkload)
            self.workloads[meta.namespace, kind, meta.name] = workload
            if kind == "ReplicaSet":
                self.replica_sets[meta.namespace, meta.name] = meta

    def _add_vpa(self, meta: ObjectMeta, written: bytes | Raw) -> None:
        status = vpa_objects.decode(decode(written, dict[str, Any]), vpa_objects.Vpa).status
        entries = status.recommendation and status.recommendation.container_recommendations
        cpu = {
            each.container_name: each.target["cpu"].milli
            for each in entries or ()
            if each.target and "cpu" in each.target
        }
        side = vpa_side(meta.name, decode(written, _WrittenVpa).spec)
        if side is not None:
            target = meta.namespace, side.target.kind, side.target.name
            self.vpas.setdefault(target, []).append(LintedVpa(side, cpu))
