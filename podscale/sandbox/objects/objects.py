"""The objects of the sandbox, with the rules of the API server but without HTTP.

Tests and simulators in the same process use this directly; ``routes`` puts HTTP on top.
Returned objects are the stored ones: read them, never change them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podscale.core.goquote import quote
from podscale.core.selectors import fields
from podscale.core.selectors import selector as labels
from podscale.core.selectors.fields import FieldRequirement, FieldSelectorError
from podscale.core.times.rfc3339 import rfc3339
from podscale.sandbox.errors import already_exists, bad_request, conflict, forbidden, not_found
from podscale.sandbox.objects import resources
from podscale.sandbox.objects.meta import prepare_create, prepare_update
from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Key, Object, ObjectTable, Storage, Stored

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


def field_requirements(text: str, resource: SandboxResource) -> tuple[FieldRequirement, ...]:
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


_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


class SandboxObjects:
    """Create, read, update and delete, as kube-apiserver would."""

    def __init__(self, storage: Storage, registry: SandboxResources) -> None:
        self.storage = storage
        self.registry = registry
        self.has_kubelet = False  # then deleted pods stay until the kubelet has stopped them
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.put({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})

    def now_text(self) -> str:
        """Return the sandbox's time as objects carry it."""
        return rfc3339(self.storage.wall())

    def resource(self, kind: str, api_version: str = "") -> SandboxResource:
        """Return the resource of a kind (``Deployment``) or a plural (``deployments[.group]``)."""
        if api_version:
            found = self.registry.of_kind(api_version, kind)
            if found is not None:
                return found
        named = self.registry.called(kind)
        if named is None:
            raise not_found(kind, "")
        return named

    def put(self, content: Object) -> Object:
        """Store an object as given, status included: for seeding. Existing ones are replaced."""
        resource = self.resource(content["kind"], content.get("apiVersion", ""))
        metadata = content.get("metadata") or {}
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        prepared = prepare_create(
            resource, namespace, content, keeps_status=True, now=self.now_text()
        )
        kept = {key: metadata[key] for key in ("uid", "creationTimestamp") if key in metadata}
        prepared["metadata"].update(kept)
        return self._store(resource, (namespace, prepared["metadata"]["name"]), prepared).object

    def get(self, resource: SandboxResource | str, namespace: str, name: str) -> Object:
        """Return one object; raises ``StatusError`` 404."""
        return self.stored(self._of(resource), namespace, name).object

    def find(self, resource: SandboxResource | str, namespace: str, name: str) -> Object | None:
        found = self._table(self._of(resource)).objects.get((namespace, name))
        return found.object if found else None

    def stored(self, resource: SandboxResource, namespace: str, name: str) -> Stored:
        found = self._table(resource).objects.get((namespace, name))
        if found is None:
            raise not_found(resource.name, name)
        return found

    def list(
        self,
        resource: SandboxResource | str,
        namespace: str = "",
        label_selector: labels.Selector = labels.EVERYTHING,
        field_selector: Sequence[FieldRequirement] = (),
    ) -> list[Object]:
        """Return the objects of one namespace or of all, in the order of their keys."""
        resource = self._of(resource)
        return [
            stored.object
            for stored in self.select(resource, namespace, label_selector, field_selector)
        ]

    def select(
        self,
        resource: SandboxResource,
        namespace: str,
        label_selector: labels.Selector,
        field_selector: Sequence[FieldRequirement],
        after: Key | None = None,
    ) -> Iterable[Stored]:
        """Yield stored objects; see ``list``."""
        table = self._table(resource)
        takes_all = label_selector.is_everything and not field_selector
        for key in table.keys(namespace, after):
            stored = table.objects[key]
            if takes_all or is_selected(stored, label_selector, field_selector):
                yield stored

    def create(self, resource: SandboxResource | str, namespace: str, body: Object) -> Stored:
        """Create from a request's body."""
        resource = self._of(resource)
        prepared = prepare_create(
            resource, namespace, body, keeps_status=False, now=self.now_text()
        )
        name = prepared["metadata"]["name"]
        if resource.namespaced:
            self._check_namespace(resource, namespace, name)
        key = (namespace if resource.namespaced else "", name)
        if key in self._table(resource).objects:
            raise already_exists(resource.name, name)
        return self._store(resource, key, resources.conform(resource, prepared))

    def update(
        self,
        resource: SandboxResource | str,
        namespace: str,
        name: str,
        body: Object,
        subresource: str = "",
    ) -> Stored:
        """Replace an object or its status; a resourceVersion in the body must be the current."""
        resource = self._of(resource)
        old = self.stored(resource, namespace, name)
        given = body.get("metadata") or {}
        revision = given.get("resourceVersion")
        if revision and revision != str(old.revision):
            raise conflict(resource.name, name)
        if given.get("uid") and given["uid"] != old.object["metadata"]["uid"]:
            wanted, held = given["uid"], old.object["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {held}"
            raise conflict(resource.name, name, why)
        new = resources.conform(resource, prepare_update(resource, old.object, body, subresource))
        if new == old.object:
            return old
        metadata = new["metadata"]
        is_going = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if is_going and not self._waits_for_kubelet(resource, new):
            return self._remove(resource, old.key)
        return self._store(resource, old.key, new)

    def delete(
        self,
        resource: SandboxResource | str,
        namespace: str,
        name: str,
        *,
        options: Mapping[str, Any] | None = None,
    ) -> Stored:
        """Delete, or mark as being deleted while finalizers or the kubelet hold the object."""
        resource = self._of(resource)
        options = options or {}
        old = self.stored(resource, namespace, name)
        metadata = old.object["metadata"]
        wanted = options.get("preconditions") or {}
        for field, held in (("uid", metadata["uid"]), ("resourceVersion", str(old.revision))):
            if wanted.get(field) and wanted[field] != held:
                raise conflict(resource.name, name, f"Precondition failed: {field} differs")
        if (resource.group, resource.kind) == ("", "Namespace"):
            return self._delete_namespace(resource, old)
        grace = options.get("gracePeriodSeconds")
        waits = self._waits_for_kubelet(resource, old.object) and grace != 0
        if metadata.get("finalizers") or waits:
            if metadata.get("deletionTimestamp"):
                return old
            spec = old.object.get("spec") or {}
            seconds = grace if grace is not None else spec.get("terminationGracePeriodSeconds", 0)
            marked = {
                **metadata,
                "deletionTimestamp": self.now_text(),
                "deletionGracePeriodSeconds": seconds if waits else 0,
            }
            return self._store(resource, old.key, {**old.object, "metadata": marked})
        return self._remove(resource, old.key)

    def _store(self, resource: SandboxResource, key: Key, content: Object) -> Stored:
        if (resource.group, resource.plural) == _CRDS:
            content = resources.accepted(self.registry, content, self.now_text())
        return self.storage.write(resource.group, resource.plural, key, content)

    def _remove(self, resource: SandboxResource, key: Key) -> Stored:
        gone = self.storage.delete(resource.group, resource.plural, key)
        if (resource.group, resource.plural) == _CRDS:
            self._remove_custom(gone.object)
        uid = gone.object["metadata"]["uid"]
        for (group, plural), dependent in self.storage.dependents(uid):
            owned = self.registry.named(group, plural)
            if owned is None:
                continue
            stored = self.storage.table(group, plural).objects[dependent]
            owners = stored.object["metadata"]["ownerReferences"]
            left = [owner for owner in owners if owner.get("uid") != uid]
            if left:
                metadata = {**stored.object["metadata"], "ownerReferences": left}
                self._store(owned, dependent, {**stored.object, "metadata": metadata})
            else:
                self.delete(owned, *dependent)
        return gone

    def _remove_custom(self, definition: Object) -> None:
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        for key in list(self.storage.table(group, plural).keys()):
            self.storage.delete(group, plural, key)
        self.registry.remove(group, plural)

    def _delete_namespace(self, resource: SandboxResource, old: Stored) -> Stored:
        name = old.key[1]
        metadata = {**old.object["metadata"], "deletionTimestamp": self.now_text()}
        status = {"phase": "Terminating"}
        marked = {**old.object, "metadata": metadata, "status": status}
        self.storage.write(resource.group, resource.plural, old.key, marked)
        for (group, plural), table in self.storage.tables():
            owned = self.registry.named(group, plural)
            for key in list(table.keys(name)):
                if owned is not None and key in table.objects:
                    self.delete(owned, *key, options={"gracePeriodSeconds": 0})
        return self._remove(resource, old.key)

    def _check_namespace(self, resource: SandboxResource, namespace: str, name: str) -> None:
        found = self.find("namespaces", "", namespace)
        if found is None:
            raise not_found("namespaces", namespace)
        if (found.get("status") or {}).get("phase") == "Terminating":
            why = (
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated"
            )
            raise forbidden(resource.name, name, why)

    def _waits_for_kubelet(self, resource: SandboxResource, content: Object) -> bool:
        if not self.has_kubelet or (resource.group, resource.kind) != ("", "Pod"):
            return False
        if (content["metadata"].get("deletionGracePeriodSeconds") or 1) == 0:
            return False
        phase = (content.get("status") or {}).get("phase")
        has_node = bool((content.get("spec") or {}).get("nodeName"))
        return has_node and phase not in ("Succeeded", "Failed")

    def _table(self, resource: SandboxResource) -> ObjectTable:
        return self.storage.table(resource.group, resource.plural)

    def _of(self, resource: SandboxResource | str) -> SandboxResource:
        return resource if isinstance(resource, SandboxResource) else self.resource(resource)


def is_selected(
    stored: Stored, label_selector: labels.Selector, field_selector: Sequence[FieldRequirement]
) -> bool:
    """Return whether an object passes both selectors."""
    return label_selector.matches(stored.labels) and (
        not field_selector or matches_fields(stored.object, field_selector)
    )
