"""Which fields can be selected by, and what an object holds there."""

from collections.abc import Sequence
from typing import Any

from podscale.core.goquote import quote
from podscale.core.selectors import fields
from podscale.core.selectors.fields import FieldRequirement, FieldSelectorError
from podscale.sandbox.errors import bad_request
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object

_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})
_SELECTABLE = {
    "pods": (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        *("spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    ),
    "events": (
        *("involvedObject.kind", "involvedObject.namespace", "involvedObject.name"),
        *("involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion"),
        *("involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"),
    ),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "replicasets.apps": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "jobs.batch": ("status.successful",),
}


def read(text: str, resource: SandboxResource) -> tuple[FieldRequirement, ...]:
    """Return the requirements of ``fieldSelector=``; raises ``StatusError`` 400."""
    if not text:
        return ()
    try:
        requirements = fields.parse(text)
    except FieldSelectorError as error:
        raise bad_request(str(error)) from None
    own = _SELECTABLE.get(resource.name)
    known = _ALWAYS.union(own or ())
    for requirement in requirements:
        if requirement.field not in known:
            raise bad_request(_refusal(requirement.field, has_own=own is not None))
    return requirements


def _refusal(field: str, *, has_own: bool) -> str:
    # Types with selectable fields of their own have a sentence of their own.
    if has_own:
        return f"field label not supported: {field}"
    return (
        f'{quote(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def matches_fields(content: Object, requirements: Sequence[FieldRequirement]) -> bool:
    """Return whether the object holds what is required."""
    values = {wanted.field: _text(at(content, wanted.field)) for wanted in requirements}
    return fields.matches(requirements, values)


def at(content: Any, path: str) -> Any:
    """Return what lies at a dotted path, or None."""
    for part in path.split("."):
        if not isinstance(content, dict):
            return None
        content = content.get(part)
    return content


def is_true(content: Object, condition: str) -> bool:
    """Return whether a condition of the object's status is True."""
    conditions = (content.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)


def is_ready(pod: Object) -> bool:
    """Return whether the pod's Ready condition is True and it is not being deleted."""
    return not pod["metadata"].get("deletionTimestamp") and is_true(pod, "Ready")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):  # `source` of an event is its component
        return str(value.get("component", ""))
    return str(value)
