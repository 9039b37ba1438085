"""Autoscalers and their targets as the watch brings them, what is kept of them, and who wrote
them last.

``PodAutoscaler`` of ``autoscaling.podscale.io`` has the HPA's schema, so one type serves
both; which resource is acted on is a parameter everywhere else.
"""

import sys
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from podscale.core.settings import PREFIX
from podscale.kube.client.wire import UNREADABLE_MANAGER, ManagedField, ManagedMeta
from podscale.kube.objects.autoscaler import Autoscaler, CrossVersionObjectReference
from podscale.kube.objects.scale import ReplicationController, Workload

V = TypeVar("V")
TargetKey = tuple[str, str, str, str]  # namespace, group, kind, name


class TargetWorkload(Workload, frozen=True, gc=False, rename="camel", kw_only=True):
    """A Deployment or StatefulSet. Not a ReplicaSet: there are ten times as many, most of
    them at zero, and what scales one owns it."""

    metadata: ManagedMeta


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


def target_of(namespace: str, reference: CrossVersionObjectReference) -> TargetKey:
    """Return what ``reference`` names, whatever version it is written in."""
    return (namespace, *reference.key)


def is_unreadable(writer: ManagedField | None) -> bool:
    """Whether who wrote was left out, because managedFields nest too deep."""
    return writer is not None and writer.manager == UNREADABLE_MANAGER


def kept_autoscaler(written: Autoscaler) -> Autoscaler:
    """Return an equal autoscaler, but for its owners and annotations of others."""
    meta, spec = written.metadata, _with_shared_texts(written.spec)
    target = spec.scale_target_ref
    if target.name == meta.name:  # nearly always
        spec = replace(spec, scale_target_ref=replace(target, name=meta.name))
    meta = replace(
        meta,
        namespace=sys.intern(meta.namespace),
        annotations=_ours(meta.annotations),
        owner_references=(),
        managed_fields=_with_shared_texts(meta.managed_fields),
    )
    return Autoscaler(meta, spec, _with_shared_texts(written.status))


def kept_workload(found: Workload) -> Workload:
    """Return an equal workload, but for labels and annotations.

    A Deployment's ReplicaSets, ten for each, have no selector either: a dict of two labels
    takes as much as ten texts.
    """
    meta, spec = found.metadata, found.spec
    meta = replace(
        meta,
        namespace=sys.intern(meta.namespace),
        labels=None,
        annotations=None,
        owner_references=_with_shared_texts(meta.owner_references),
    )
    if isinstance(found, TargetWorkload):
        managed = _with_shared_texts(found.metadata.managed_fields)
        meta = replace(meta, managed_fields=managed)
    elif is_part(found):
        spec = replace(spec, selector=None)
    return replace(found, metadata=meta, spec=spec)


def _with_shared_texts(value: V, varying: dict[str, str] | None = None) -> V:
    """Return an equal value of structs, tuples and texts, each text kept once.

    ``varying``: the amounts and times so far, of which there is no end: CPython 3.12.0 to 3.12.6
    keep what they intern for ever. These are kept once within the value only.
    """
    if value is None:  # most fields of a status
        return value
    varying = {} if varying is None else varying
    found: object = value
    if isinstance(value, str):
        is_varying = value[:1].isdigit()
        found = varying.setdefault(value, value) if is_varying else sys.intern(value)
    elif isinstance(value, tuple):
        found = tuple(_with_shared_texts(each, varying) for each in value)
    elif isinstance(value, Struct):
        fields = astuple(value)
        found = type(value)(*[_with_shared_texts(each, varying) for each in fields])
    return found  # type: ignore[return-value]


def _ours(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)} or None
