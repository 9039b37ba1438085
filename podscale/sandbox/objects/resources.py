"""The resources that the sandbox serves: the built-in ones, and those of CRDs as they come."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from msgspec import Struct

from podscale.sandbox.objects.storage import Object


class ScalePaths(Struct, frozen=True):
    """Where a resource keeps what its ``scale`` subresource shows (JSON paths, no leading dot)."""

    spec: str = "spec.replicas"
    status: str = "status.replicas"
    selector: str = "spec.selector"  # an object, or the text form


class Column(Struct, frozen=True):
    """One printed column."""

    name: str
    type: str
    json_path: str | Callable[[dict[str, Any]], Any]  # a function of the object where no path does
    priority: int = 0


class SandboxResource(Struct, frozen=True, eq=False):
    """One resource: how it is called, and which rules its objects follow."""

    group: str
    version: str  # the version stored and preferred
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    has_generation: bool = False  # metadata.generation counts changes of the spec
    scale: ScalePaths | None = None
    is_custom: bool = False  # from a CRD: lists repeat kind and apiVersion in every item
    versions: tuple[str, ...] = ()  # all served; () is only ``version``
    schemas: dict[str, dict[str, Any]] = {}  # by version, for CRDs
    columns: dict[str, tuple[Column, ...]] = {}  # by version, for CRDs
    verbs: tuple[str, ...] = (  # of a review only "create": it is answered, not stored
        *("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
    )

    @property
    def name(self) -> str:
        """``plural[.group]``, as messages show it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def is_review(self) -> bool:
        """Whether a POST asks for a verdict."""
        return self.verbs == ("create",)

    @property
    def served_versions(self) -> tuple[str, ...]:
        return self.versions or (self.version,)

    def api_version(self, version: str = "") -> str:
        """``group/version``, or the version alone for the core group."""
        version = version or self.version
        return f"{self.group}/{version}" if self.group else version


class SandboxResources:
    """All resources by group and plural, and in discovery's order."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], SandboxResource] = {
            (resource.group, resource.plural): resource for resource in BUILTIN
        }
        self._words: dict[str, SandboxResource] = {}

    def __iter__(self) -> Iterator[SandboxResource]:
        return iter(self._resources.values())

    def find(self, group: str, version: str, plural: str) -> SandboxResource | None:
        """Return the resource of a URL, or None where that version does not serve it."""
        resource = self._resources.get((group, plural))
        if resource is None or version not in resource.served_versions:
            return None
        return resource

    def serves(self, group: str, version: str) -> bool:
        return any(r.group == group and version in r.served_versions for r in self)

    def named(self, group: str, plural: str) -> SandboxResource | None:
        return self._resources.get((group, plural))

    def of_kind(self, api_version: str, kind: str) -> SandboxResource | None:
        """Return the resource whose objects carry ``apiVersion`` and ``kind``."""
        group, _, version = api_version.rpartition("/")
        for resource in self._resources.values():
            if (resource.group, resource.kind) == (group, kind):
                return resource if version in resource.served_versions else None
        return None

    def called(self, word: str) -> SandboxResource | None:
        """Return the resource of a kind, a plural, or ``plural.group``; the first that fits."""
        if not self._words:
            for resource in self._resources.values():
                for name in (resource.kind, resource.plural, resource.name):
                    self._words.setdefault(name, resource)
        return self._words.get(word)

    def add(self, resource: SandboxResource) -> None:
        self._resources[resource.group, resource.plural] = resource
        self._words = {}

    def remove(self, group: str, plural: str) -> None:
        self._resources.pop((group, plural), None)
        self._words = {}


def _of(
    group: str, plural: str, kind: str, *short: str, version: str = "v1", **more: Any
) -> SandboxResource:
    """Return a resource by its group, names and short names."""
    return SandboxResource(group, version, plural, kind, short_names=short, **more)


def _review(group: str, plural: str, kind: str, **more: Any) -> SandboxResource:
    return _of(f"{group}.k8s.io", plural, kind, verbs=("create",), **more)


_WIDE: dict[str, Any] = {"namespaced": False}
_STATUS: dict[str, Any] = {"has_status": True}
_SPEC: dict[str, Any] = {"has_status": True, "has_generation": True}
_IN_ALL: dict[str, Any] = {**_SPEC, "categories": ("all",)}
_SCALES: dict[str, Any] = {**_IN_ALL, "scale": ScalePaths()}
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"

BUILTIN: tuple[SandboxResource, ...] = (
    _of("", "configmaps", "ConfigMap", "cm"),
    _of("", "endpoints", "Endpoints", "ep"),
    _of("", "events", "Event", "ev"),
    _of("", "limitranges", "LimitRange", "limits"),
    _of("", "namespaces", "Namespace", "ns", **_WIDE, **_STATUS),
    _of("", "nodes", "Node", "no", **_WIDE, **_STATUS),
    _of("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", **_STATUS),
    _of("", "persistentvolumes", "PersistentVolume", "pv", **_WIDE, **_STATUS),
    _of("", "pods", "Pod", "po", **_IN_ALL),
    _of("", "replicationcontrollers", "ReplicationController", "rc", **_SCALES),
    _of("", "resourcequotas", "ResourceQuota", "quota", **_STATUS),
    _of("", "secrets", "Secret"),
    _of("", "serviceaccounts", "ServiceAccount", "sa"),
    _of("", "services", "Service", "svc", **_STATUS, categories=("all",)),
    _of("apiregistration.k8s.io", "apiservices", "APIService", **_WIDE, **_SPEC),
    _of("apps", "deployments", "Deployment", "deploy", **_SCALES),
    _of("apps", "replicasets", "ReplicaSet", "rs", **_SCALES),
    _of("apps", "statefulsets", "StatefulSet", "sts", **_SCALES),
    _of("apps", "daemonsets", "DaemonSet", "ds", **_IN_ALL),
    _of("batch", "jobs", "Job", **_IN_ALL),
    _of("batch", "cronjobs", "CronJob", "cj", **_IN_ALL),
    _of("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa",
        version="v2", **_IN_ALL),
    _of("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", **_SPEC),
    _of("coordination.k8s.io", "leases", "Lease"),
    _of("events.k8s.io", "events", "Event", "ev"),
    _of("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _of("networking.k8s.io", "ingresses", "Ingress", "ing", **_SPEC),
    _of("networking.k8s.io", "ingressclasses", "IngressClass", **_WIDE),
    _of("storage.k8s.io", "storageclasses", "StorageClass", "sc", **_WIDE),
    _of("scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", **_WIDE),
    _review("authentication", "tokenreviews", "TokenReview", **_WIDE),
    _review("authorization", "subjectaccessreviews", "SubjectAccessReview", **_WIDE),
    _review("authorization", "selfsubjectaccessreviews", "SelfSubjectAccessReview", **_WIDE),
    _review("authorization", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
    _of(_RBAC, "roles", "Role"),
    _of(_RBAC, "rolebindings", "RoleBinding"),
    _of(_RBAC, "clusterroles", "ClusterRole", **_WIDE),
    _of(_RBAC, "clusterrolebindings", "ClusterRoleBinding", **_WIDE),
    *(_of(_ADMISSION, f"{kind.lower()}s", kind, **_WIDE, has_generation=True) for kind in
      ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
       "ValidatingAdmissionPolicyBinding")),
    _of(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", **_WIDE, **_SPEC),
    _of("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition",
        "crd", "crds", **_WIDE, **_SPEC),
)  # fmt: skip


_TYPE_META = ("apiVersion", "kind", "metadata")


def accepted(registry: SandboxResources, definition: Object, now: str) -> Object:
    """Serve what ``definition`` describes, and return it with the status of an accepted CRD."""
    spec = definition["spec"]
    names = spec["names"]
    registry.add(_resource(spec))
    status = {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": names,
        "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
    }
    return {**definition, "status": definition.get("status") or status}


def _resource(spec: dict[str, Any]) -> SandboxResource:
    names = spec["names"]
    served = [version for version in spec["versions"] if version.get("served", True)]
    stored = next((v for v in spec["versions"] if v.get("storage")), served[0])
    subresources = stored.get("subresources") or {}
    scale = subresources.get("scale")
    return SandboxResource(
        spec["group"],
        stored["name"],
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        has_generation=True,
        scale=ScalePaths(
            scale["specReplicasPath"].lstrip("."),
            scale["statusReplicasPath"].lstrip("."),
            scale.get("labelSelectorPath", "").lstrip("."),
        )
        if scale
        else None,
        is_custom=True,
        versions=tuple(version["name"] for version in served),
        schemas={
            version["name"]: (version.get("schema") or {}).get("openAPIV3Schema") or {}
            for version in served
        },
        columns={
            version["name"]: tuple(
                Column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0))
                for c in version.get("additionalPrinterColumns") or ()
            )
            for version in served
        },
    )


def conform(resource: SandboxResource, content: Object) -> Object:
    """Return the object pruned and with defaults."""
    schema = resource.schemas.get(resource.version)
    if not schema:
        return content
    shaped = {key: deepcopy(value) for key, value in content.items() if key not in _TYPE_META}
    properties = (schema.get("properties") or {}).items()
    inner = {**schema, "properties": {k: v for k, v in properties if k not in _TYPE_META}}
    return {**{key: content[key] for key in _TYPE_META}, **_shape(shaped, inner)}


def _shape(value: Any, schema: dict[str, Any]) -> Any:
    properties = schema.get("properties") or {}
    if isinstance(value, dict) and not schema.get("x-kubernetes-embedded-resource"):
        for name, part in properties.items():
            if "default" in part and value.get(name) is None and not part.get("nullable"):
                value[name] = deepcopy(part["default"])
        extra = schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or extra is True
        if properties or isinstance(extra, dict):
            shaped = {}
            for name, part in value.items():
                if name in properties:
                    shaped[name] = _shape(part, properties[name])
                elif isinstance(extra, dict):
                    shaped[name] = _shape(part, extra)
                elif keeps:
                    shaped[name] = part
            return shaped
        return value
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_shape(item, schema["items"]) for item in value]
    return value
