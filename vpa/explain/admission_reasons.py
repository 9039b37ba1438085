"""Admission's reasons as they stand on the pod: written by the webhook, read for explanations.

Not under ``vpa``, whose annotations the pod stores keep in memory for every pod.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from vpa.explain.admission import AdmittedPod, ValueQuestion
from vpa.explain.explanation import SizingExplanation, explanation
from vpa.model.api.quantities import RESOURCES

REASONS = "podscale.io/admission"
Field = Literal["request", "limit"]
_MOST_BYTES = 16 * 1024  # all annotations of a pod together may have 256 KiB


class AdmittedValue(Struct, frozen=True):
    """One value of a container, and why it is so; ``value`` None: left as it was."""

    value: str | None
    reasons: tuple[str, ...]
    facts: Mapping[str, Any]


class AdmissionReasons(Struct, frozen=True):
    """What one annotation says."""

    vpa: str
    containers: Mapping[str, Mapping[str, AdmittedValue]]  # by name, then "cpu request", ...

    def explanations(self) -> list[tuple[str, str, SizingExplanation]]:
        """Return container, value's name and explanation, in their order."""
        return [
            (container, name, explanation(value.reasons, [value.facts], {"value": value.value}))
            for container, values in self.containers.items()
            for name, value in values.items()
        ]


class AnnotationWriter:
    """The annotation of a pod that a VPA decides about, made container by container."""

    def __init__(self, vpa: str, view: AdmittedPod) -> None:
        self._vpa = vpa
        self._view = view
        self._containers: dict[str, dict[str, AdmittedValue]] = {}
        self._bytes = 0

    def add(self, container: str) -> bool:
        """Explain one container; False: the annotation would be too long, and there is none.

        A limit stands there only where one is set: without it there is nothing to explain.
        """
        values = self._containers[container] = {}
        for resource in RESOURCES:
            for field in get_args(Field):
                found = self._view.explain(ValueQuestion(container, resource, field))
                value = found.decision["value"]
                if value is not None or field == "request":
                    told = None if value is None else str(value)
                    values[f"{resource} {field}"] = AdmittedValue(told, found.reasons, found.facts)
        self._bytes += len(msgspec.json.encode(values))
        return self._bytes <= _MOST_BYTES

    def value(self) -> str | None:
        """Return the annotation; None if it would be too long."""
        text = msgspec.json.encode(AdmissionReasons(self._vpa, self._containers)).decode()
        return text if len(text) <= _MOST_BYTES else None


def read(annotations: Mapping[str, str] | None) -> AdmissionReasons | None:
    """Return what the webhook wrote; None where it wrote nothing that can be read."""
    text = (annotations or {}).get(REASONS)
    # Whoever may make pods may write it, too: longer, or nested deeper, it is not the webhook's.
    if text is None or len(text) > _MOST_BYTES:
        return None
    try:
        return decode_json(text, AdmissionReasons)
    except msgspec.DecodeError:
        return None
