"""Watched objects without what nobody reads, and what many of them say alike kept once.

Metrics, texts of conditions and labels repeat from object to object, and the annotation of
``kubectl apply`` repeats the object itself: several KB an autoscaler.
"""

import sys
from collections.abc import Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from hpa.machine.objects import Autoscaler, TargetWorkload, is_part
from podscale.core.settings import PREFIX
from podscale.kube.objects.scale import Workload

_MOST = 50_000  # remembered; then all are forgotten, which costs memory and nothing else

P = TypeVar("P", bound=Struct)
V = TypeVar("V")


class InternedValues:
    """What was seen so far."""

    def __init__(self) -> None:
        self._parts: dict[tuple[type[Struct], bytes], Struct] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def autoscaler(self, written: Autoscaler) -> Autoscaler:
        """Return an equal autoscaler, but for annotations of others."""
        meta, spec, status = written.metadata, written.spec, written.status
        target = _with_shared_texts(spec.scale_target_ref)
        if target.name == meta.name:  # nearly always
            target = replace(target, name=meta.name)
        return Autoscaler(
            replace(
                meta,
                namespace=sys.intern(meta.namespace),
                annotations=_ours(meta.annotations),
                owner_references=_with_shared_texts(meta.owner_references),
                managed_fields=_with_shared_texts(meta.managed_fields),
            ),
            replace(
                spec,
                scale_target_ref=target,
                metrics=None if spec.metrics is None else tuple(map(self._part, spec.metrics)),
                behavior=None if spec.behavior is None else self._part(spec.behavior),
            ),
            _with_shared_texts(status),
        )

    def workload(self, found: Workload) -> Workload:
        """Return an equal workload, but for labels, annotations and the UIDs of its owners.

        A Deployment's ReplicaSets, ten for each, have no selector either: a dict of two labels
        takes as much as ten texts.
        """
        meta, spec = found.metadata, found.spec
        owners = tuple(self._part(replace(each, uid="")) for each in meta.owner_references)
        meta = replace(
            meta,
            namespace=sys.intern(meta.namespace),
            labels=None,
            annotations=None,
            owner_references=owners,
        )
        if isinstance(found, TargetWorkload):
            managed = _with_shared_texts(found.metadata.managed_fields)
            meta = replace(meta, managed_fields=managed)
        elif is_part(found):
            spec = replace(spec, selector=None)
        return replace(found, metadata=meta, spec=spec, status=self._part(found.status))

    def _part(self, part: P) -> P:
        if len(self._parts) >= _MOST:
            self._parts.clear()
        try:
            known = self._parts.setdefault((type(part), self._encode(part)), part)
        except OverflowError:
            return part  # a number of more than 64 bits: only a CRD lets it through
        return cast(P, known)


def _with_shared_texts(value: V) -> V:
    """Return an equal value of structs, tuples and texts, each text kept once."""
    found: object = value
    if isinstance(value, str):
        found = sys.intern(value)  # for as long as anybody has it
    elif isinstance(value, tuple):
        found = tuple(map(_with_shared_texts, value))
    elif isinstance(value, Struct):
        found = type(value)(*map(_with_shared_texts, astuple(value)))
    return cast(V, found)


def _ours(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)} or None
