"""The resources that the sandbox serves: the built-in ones, and those of CRDs as they come."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

_AUTHORIZATION = "authorization.k8s.io"


class ScalePaths(Struct, frozen=True):
    """Where a resource keeps what its ``scale`` subresource shows (JSON paths, no leading dot)."""

    spec: str = "spec.replicas"
    status: str = "status.replicas"
    selector: str = "spec.selector"  # an object, or the text form


class Column(Struct, frozen=True):
    """One printed column of a CRD."""

    name: str
    type: str
    json_path: str
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


def _core(plural: str, kind: str, **more: Any) -> SandboxResource:
    return SandboxResource("", "v1", plural, kind, **more)


def _apps(plural: str, kind: str, short: str, *, scales: bool = True) -> SandboxResource:
    return SandboxResource(
        "apps",
        "v1",
        plural,
        kind,
        short_names=(short,),
        categories=("all",),
        has_status=True,
        has_generation=True,
        scale=ScalePaths() if scales else None,
    )


def _rbac(plural: str, kind: str, *, namespaced: bool) -> SandboxResource:
    return SandboxResource("rbac.authorization.k8s.io", "v1", plural, kind, namespaced=namespaced)


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> SandboxResource:
    return SandboxResource(group, "v1", plural, kind, namespaced=namespaced, verbs=("create",))


def _spec_status(group: str, version: str, plural: str, kind: str, **more: Any) -> SandboxResource:
    return SandboxResource(
        group, version, plural, kind, has_status=True, has_generation=True, **more
    )


BUILTIN: tuple[SandboxResource, ...] = (
    _core("configmaps", "ConfigMap", short_names=("cm",)),
    _core("endpoints", "Endpoints", short_names=("ep",)),
    _core("events", "Event", short_names=("ev",)),
    _core("limitranges", "LimitRange", short_names=("limits",)),
    _core("namespaces", "Namespace", namespaced=False, short_names=("ns",), has_status=True),
    _core("nodes", "Node", namespaced=False, short_names=("no",), has_status=True),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), has_status=True),
    _core(
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        has_status=True,
    ),
    _core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        has_status=True,
        has_generation=True,
    ),
    _core(
        "replicationcontrollers",
        "ReplicationController",
        short_names=("rc",),
        categories=("all",),
        has_status=True,
        has_generation=True,
        scale=ScalePaths(),
    ),
    _core("resourcequotas", "ResourceQuota", short_names=("quota",), has_status=True),
    _core("secrets", "Secret"),
    _core("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    _core("services", "Service", short_names=("svc",), categories=("all",), has_status=True),
    _spec_status("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False),
    _apps("deployments", "Deployment", "deploy"),
    _apps("replicasets", "ReplicaSet", "rs"),
    _apps("statefulsets", "StatefulSet", "sts"),
    _apps("daemonsets", "DaemonSet", "ds", scales=False),
    _spec_status("batch", "v1", "jobs", "Job", categories=("all",)),
    _spec_status("batch", "v1", "cronjobs", "CronJob", short_names=("cj",), categories=("all",)),
    _spec_status(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        short_names=("hpa",),
        categories=("all",),
    ),
    _spec_status(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",)
    ),
    SandboxResource("coordination.k8s.io", "v1", "leases", "Lease"),
    SandboxResource("events.k8s.io", "v1", "events", "Event", short_names=("ev",)),
    SandboxResource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    _spec_status("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",)),
    SandboxResource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False),
    SandboxResource(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short_names=("sc",),
    ),
    SandboxResource(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short_names=("pc",),
    ),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    _review(_AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
    _review(_AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review(
        _AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True
    ),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    SandboxResource(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        namespaced=False,
        has_generation=True,
    ),
    SandboxResource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
        has_generation=True,
    ),
    _spec_status(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
    ),
)
