"""Autoscalers and their targets as the watch brings them, and who wrote them last.

``PodAutoscaler`` of ``autoscaling.podscale.io`` has the HPA's schema, so one type serves
both; which resource is acted on is a parameter everywhere else.
"""

from msgspec import Struct

from hpa.decide.api import wire
from hpa.decide.api.reading import read
from hpa.decide.api.spec import HPA, MetricObject
from podscale.kube.client.nesting import UNREADABLE_MANAGER
from podscale.kube.client.wire import ObjectMeta, Time
from podscale.kube.objects.scale import ReplicationController, Workload

TargetKey = tuple[str, str, str, str]  # namespace, group, kind, name


class ManagedField(Struct, frozen=True, gc=False, rename="camel"):
    """Who wrote last through which subresource; the fields themselves are not read."""

    manager: str = ""
    subresource: str = ""
    time: Time | None = None


class WrittenMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata with the writers."""

    managed_fields: tuple[ManagedField, ...] = ()


class Autoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """One HPA or PodAutoscaler."""

    metadata: WrittenMeta
    spec: wire.Spec = wire.Spec()
    status: wire.WireStatus = wire.WireStatus()


class TargetWorkload(Workload, frozen=True, gc=False, rename="camel", kw_only=True):
    """A Deployment or StatefulSet. Not a ReplicaSet: there are ten times as many, most of
    them at zero, and what scales one owns it."""

    metadata: WrittenMeta


class ClaimSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The only field of a claim."""

    scale_target_ref: MetricObject


class Claim(Struct, frozen=True, gc=False, rename="camel"):
    """An in-tree HPA beside our own objects: what it scales."""

    metadata: ObjectMeta
    spec: ClaimSpec


def is_part(found: Workload | ReplicationController) -> bool:
    """Whether a workload is a Deployment's ReplicaSet: scaling it would be undone, so that its
    selector is not kept. Whoever scales it all the same reads its scale by GET."""
    owner = found.metadata.controller
    return (
        not isinstance(found, TargetWorkload)
        and owner is not None
        and owner.kind == "Deployment"
        and owner.api_version.startswith("apps/")
    )


def target_of(namespace: str, reference: MetricObject) -> TargetKey:
    """Return what ``reference`` names, whatever version it is written in."""
    group, _, version = reference.api_version.rpartition("/")
    return (namespace, group if version else "", reference.kind, reference.name)


def to_decide(written: Autoscaler) -> HPA:
    """Return the object as decisions read it; raises ``quantity.QuantityError``."""
    meta = written.metadata
    return read(
        wire.WireAutoscaler(
            metadata=wire.WireMetadata(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                generation=meta.generation,  # absent is 0, as to upstream, whose status says so
                annotations=meta.annotations,
            ),
            spec=written.spec,
            status=written.status,
        )
    )


def status_writer(written: Autoscaler) -> ManagedField | None:
    """Return who wrote the status last; None where nobody ever did, or no one tells."""
    return _last(written.metadata, "status")


def scale_writer(target: TargetWorkload) -> ManagedField | None:
    """Return who wrote the size last through the scale subresource."""
    return _last(target.metadata, "scale")


def is_unreadable(writer: ManagedField | None) -> bool:
    """Whether who wrote was left out, because managedFields nest too deep."""
    return writer is not None and writer.manager == UNREADABLE_MANAGER


def _last(meta: WrittenMeta, subresource: str) -> ManagedField | None:
    entries = [
        entry
        for entry in meta.managed_fields
        if entry.subresource == subresource and entry.time is not None
    ]
    return max(entries, key=lambda entry: entry.time or 0.0, default=None)
