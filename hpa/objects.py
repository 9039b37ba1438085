"""HorizontalPodAutoscalers as the watch brings them: ours to scale, and who wrote them last.

``PodAutoscaler`` of ``autoscaling.podscale.io`` has the same schema, so one type serves
both; which resource is acted on is a parameter everywhere else.
"""

from msgspec import Struct

from hpa.decide import wire
from hpa.decide.reading import read
from hpa.decide.spec import HPA
from podscale.kube.wire import ObjectMeta, Time


class ManagedField(Struct, frozen=True, gc=False, rename="camel"):
    """Who wrote last through which subresource; the fields themselves are not read."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: Time | None = None


class AutoscalerMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata with the writers."""

    managed_fields: tuple[ManagedField, ...] = ()


class Autoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """One HPA or PodAutoscaler."""

    metadata: AutoscalerMeta
    spec: wire.Spec = wire.Spec()
    status: wire.WireStatus = wire.WireStatus()


def to_decide(written: Autoscaler) -> HPA:
    """Return the object as decisions read it; raises ``quantity.QuantityError``."""
    meta = written.metadata
    return read(
        wire.Autoscaler(
            metadata=wire.Metadata(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                generation=meta.generation or None,
                annotations=meta.annotations,
            ),
            spec=written.spec,
            status=written.status,
        )
    )


def status_writer(written: Autoscaler) -> ManagedField | None:
    """Return who wrote the status last; None where nobody ever did, or no one tells."""
    entries = [
        entry
        for entry in written.metadata.managed_fields
        if entry.subresource == "status" and entry.time is not None
    ]
    return max(entries, key=lambda entry: entry.time or 0.0, default=None)
