"""Watched objects without what nobody reads, and what many of them say alike kept once.

Metrics, texts of conditions and labels repeat from object to object, and the annotation of
``kubectl apply`` repeats the object itself: several KB an autoscaler.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from hpa.decide.api import wire
from hpa.decide.api.spec import MetricObject
from hpa.machine.objects import Autoscaler, TargetWorkload, is_part
from podscale.core.settings import PREFIX
from podscale.kube.client.wire import ObjectMeta, OwnerReference
from podscale.kube.objects.scale import Workload

_MOST = 50_000  # remembered; then all are forgotten, which costs memory and nothing else


P = TypeVar("P", bound=Struct)
M = TypeVar("M", bound=ObjectMeta)


class InternedValues:
    """What was seen so far."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[type[Struct], bytes], Struct] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def autoscaler(self, written: Autoscaler) -> Autoscaler:
        """Return an equal autoscaler, but for annotations of others."""
        meta, spec, status = written.metadata, written.spec, written.status
        target = spec.scale_target_ref
        owners = tuple(map(self._texts_of, meta.owner_references))
        return Autoscaler(
            replace(
                self._meta(meta, _ours(meta.annotations), owners),
                managed_fields=tuple(map(self._texts_of, meta.managed_fields)),
            ),
            replace(
                spec,
                scale_target_ref=MetricObject(
                    self._text(target.kind),
                    meta.name if target.name == meta.name else target.name,  # nearly always
                    self._text(target.api_version),
                ),
                metrics=_each(self._part, spec.metrics),
                behavior=None if spec.behavior is None else self._part(spec.behavior),
            ),
            replace(
                status,
                conditions=_each(self._texts_of, status.conditions),
                current_metrics=_each(self._current, status.current_metrics),
            ),
        )

    def workload(self, found: Workload) -> Workload:
        """Return an equal workload, but for labels, annotations and the UIDs of its owners.

        A Deployment's ReplicaSets, ten for each, have no selector either: a dict of two labels
        takes as much as ten texts.
        """
        written = found.metadata
        owners = tuple(self._part(replace(each, uid="")) for each in written.owner_references)
        meta, spec = replace(self._meta(written, None, owners), labels=None), found.spec
        if isinstance(found, TargetWorkload):
            managed = tuple(map(self._texts_of, found.metadata.managed_fields))
            meta = replace(meta, managed_fields=managed)
        elif is_part(found):
            spec = replace(spec, selector=None)
        return replace(found, metadata=meta, spec=spec, status=self._part(found.status))

    def _meta(
        self, meta: M, annotations: dict[str, str] | None, owners: tuple[OwnerReference, ...]
    ) -> M:
        namespace = self._text(meta.namespace)
        return replace(meta, namespace=namespace, annotations=annotations, owner_references=owners)

    def _current(self, metric: wire.CurrentMetric) -> wire.CurrentMetric:
        sources = {
            field: self._source(each)
            for field in wire.SOURCES.values()
            if (each := getattr(metric, field)) is not None
        }
        return wire.CurrentMetric(self._text(metric.type), **sources)

    def _source(self, source: wire.SourceStatus) -> wire.SourceStatus:
        name, container = self._text(source.name), self._text(source.container)
        return replace(source, name=name, container=container, metric=self._part(source.metric))

    def _texts_of(self, part: P) -> P:
        """Return an equal struct, whose own texts are kept once."""
        text = self._text
        return type(part)(*[text(each) if type(each) is str else each for each in astuple(part)])

    def _text(self, text: str) -> str:
        if len(self._texts) >= _MOST:
            self._texts.clear()
        return self._texts.setdefault(text, text)

    def _part(self, part: P) -> P:
        if len(self._parts) >= _MOST:
            self._parts.clear()
        try:
            known = self._parts.setdefault((type(part), self._encode(part)), part)
        except OverflowError:
            return part  # a number of more than 64 bits: only a CRD lets it through
        return cast(P, known)


def _ours(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)} or None


def _each(share: Callable[[P], P], parts: tuple[P, ...] | None) -> tuple[P, ...] | None:
    return None if parts is None else tuple(map(share, parts))
