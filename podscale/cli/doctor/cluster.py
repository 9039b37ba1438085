"""What the doctor asks a cluster: resources, objects, APIServices, and who may read."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from adapter.doctor.diagnosis import API_GROUPS, rbac_of
from adapter.doctor.evidence import Access, AskedEvidence
from podscale.cli.cluster import OTHER_CLUSTER
from podscale.cli.inputs import CommandFailed
from podscale.kube.client.access_review import reviewed
from podscale.kube.client.api import Api, Response
from podscale.kube.client.errors import KubeError, NoMatch, ObjectNotFound
from podscale.kube.client.resource import API_SERVICES, HPAS, Resource
from podscale.kube.client.wire import ListOf, ObjectMeta, PartialObjectMetadata, decode
from podscale.kube.discovery import ApiDiscovery, Mapper
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.cluster import ApiService, ApiServiceCondition
from podscale.kube.objects.scale import WireScale

READER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
_MOST_OBJECTS = 2_000
_PAGE, _MOST_PAGES = 500, 100
_YOUNG_S = 120.0  # two scrapes at the usual minute
_TYPES = {"custom": {"Pods", "Object"}, "external": {"External"}}  # of metrics of HPAs
VERSIONS = {"custom": ("v1beta1", "v1beta2"), "external": ("v1beta1",)}

T = TypeVar("T")


class ClusterFailed(CommandFailed):
    """The cluster did not tell what is needed; the text says what and why."""

    @property
    def is_absent(self) -> bool:
        return isinstance(self.__cause__, ObjectNotFound)


class _ListedMetric(Struct, frozen=True):
    name: str = ""  # "pods/http_requests"; of an external metric its own


class _MetricList(Struct, frozen=True):
    resources: Sequence[_ListedMetric] | None = None


class _ManagedFields(Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: Mapping[str, Mapping[str, Any]] = {}


class _ServiceMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    managed_fields: Sequence[_ManagedFields] = ()


class _ApiService(ApiService, frozen=True):
    metadata: _ServiceMeta = _ServiceMeta()


class DoctorCluster:
    """Facts of one cluster; counts its requests and keeps what deserves a note."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.requests = 0
        self.notes: list[str] = []
        self.mapper = Mapper()
        self.young: set[str] = set()  # objects so new that nothing may have been scraped of them

    async def learn_resources(self) -> None:
        """Read discovery; raises ``ClusterFailed`` unless both documents can be read."""
        discovery = ApiDiscovery(self._api)
        self.requests += 2
        try:
            self.mapper = await discovery.refresh()
            if discovery.failure is not None:
                raise discovery.failure
        except KubeError as error:
            at = f"GET {next(each for each in discovery.failed_groups[::-1] if each[0] == '/')}: "
            text = f"API discovery failed: {at}{str(error).removeprefix(at)}. {OTHER_CLUSTER}; with"
            raise ClusterFailed(f"{text} --config FILE --no-cluster none is needed") from error
        if discovery.failed_groups:
            self.notes.append(
                f"Discovery is partial: {', '.join(discovery.failed_groups)} did not answer. Rules "
                "about resources of these groups cannot be judged, and an adapter that starts now "
                "does not know them."
            )

    async def hpa(self, namespace: str, name: str) -> Mapping[str, object]:
        """Return an HPA as it is; raises ``ClusterFailed``."""
        absent = f"there is no HPA {name} in namespace {namespace} (-n NAMESPACE: in another?)"
        try:
            return await self.get(HPAS.path(namespace, name), dict[str, Any], absent=absent)
        except ClusterFailed as failed:
            if failed.is_absent:
                await self.find_namespace(namespace)
            raise

    async def find_namespace(self, namespace: str) -> None:
        """Raise ``ClusterFailed`` for a namespace that is not there; who may not ask passes."""
        path, absent = f"/api/v1/namespaces/{namespace}", f"there is no namespace {namespace}"
        try:
            await self.get(path, dict[str, Any], absent=absent)
        except ClusterFailed as failed:
            if failed.is_absent:
                raise

    async def listed(self, path: str, what: str) -> AsyncIterator[list[msgspec.Raw]]:
        """Yield the objects of a list page by page; that they may not be read is a note. Raises
        ``ClusterFailed`` where the API server fails."""
        query = {"limit": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            try:
                found = await self.get(path, ListOf[msgspec.Raw], query)
            except ClusterFailed as failed:
                if getattr(failed.__cause__, "status", 500) >= 500:
                    raise
                self.notes.append(str(failed))
                return
            yield found.items or []
            if not found.metadata.continue_:
                return
            query["continue"] = found.metadata.continue_
        self.notes.append(f"only the first {_PAGE * _MOST_PAGES} {what} were looked at")

    async def target_selector(self, namespace: str, target: CrossVersionObjectReference) -> str:
        """Return the pod selector of a scale target; raises ``ClusterFailed``."""
        path = self.resource_of(target).path(namespace, target.name, "scale")
        absent = (
            f"the target of the HPA, {target.kind}/{target.name}, is not in namespace {namespace}, "
            "or has no scale subresource: correct spec.scaleTargetRef or create it"
        )
        return (await self.get(path, WireScale, absent=absent)).status.selector

    def resource_of(self, target: CrossVersionObjectReference) -> Resource:
        """Return the resource of a scale target; raises ``ClusterFailed``."""
        try:
            return self.mapper.for_kind(target.kind, target.api_version.rpartition("/")[0])[0]
        except NoMatch as error:
            raise ClusterFailed(f"the target of the HPA: {error}") from error

    async def object_names(self, asked: AskedEvidence) -> list[str]:
        """Return the objects that ``asked`` means, by name; raises ``ClusterFailed``."""
        if asked.api == "external" or asked.name not in ("", "*"):
            return [] if asked.api == "external" else [asked.name]
        try:
            resource = self.mapper.parse(asked.resource)
        except NoMatch as error:
            raise ClusterFailed(f"--resource: {error}") from error
        query = {"limit": str(_MOST_OBJECTS)}
        if asked.selector:
            query["labelSelector"] = asked.selector
        found = await self.get(resource.path(asked.namespace), ListOf[PartialObjectMetadata], query)
        metadata = [item.metadata for item in found.items or ()]
        born_after = time.time() - _YOUNG_S
        self.young |= {
            each.name for each in metadata if (each.creation_timestamp or 0.0) > born_after
        }
        return [each.name for each in metadata]

    async def settled_names(self, asked: AskedEvidence, purpose: str) -> list[str]:
        """Return those of them that are not new; that they may not be read is a note."""
        try:
            names = await self.object_names(asked)
        except ClusterFailed as failed:
            self.notes.append(f"{purpose} was not looked at: {failed}")
            return []
        return [name for name in names if name not in self.young]

    async def api_services(self, api: str) -> dict[str, str]:
        """Return APIService -> Service of one metrics API, as far as they exist; "": not known."""
        services = {}
        for version in VERSIONS[api]:
            name = f"{version}.{API_GROUPS[api]}"
            try:
                found = await self.get(API_SERVICES.path("", name), _ApiService)
            except ClusterFailed as failed:
                if not failed.is_absent:
                    self.notes.append(str(failed))
                    services[name] = ""
                continue
            behind = found.spec.service
            services[name] = str(behind or "the API server")
            self.notes += [
                f"APIService {name} is not available: {each.message}{_untrusted(found, each)}"
                for each in found.status.conditions
                if each.type == "Available" and each.status == "False"
            ]
        return services

    async def listed_metrics(self, types: AbstractSet[str]) -> dict[str, frozenset[str]]:
        """Return the names that are listed, by each API of metrics of these types."""
        found: dict[str, frozenset[str]] = {}
        for api, group in API_GROUPS.items():
            if types & _TYPES[api]:
                names: set[str] = set()
                for version in self.mapper.versions(group):
                    try:
                        listed = await self.get(f"/apis/{group}/{version}", _MetricList)
                        names.update(each.name for each in listed.resources or ())
                    except ClusterFailed as failed:
                        self.notes.append(str(failed))
                found[api] = frozenset(names)
        if not self.mapper.versions("metrics.k8s.io"):
            found["resource"] = frozenset()
        return found

    async def access(self, asked: AskedEvidence, user: str) -> Access | None:
        """Return whether ``user`` may read the metric; ``None`` when that may not be asked."""
        verb, path = rbac_of(asked)
        resource, _, subresource = path.partition("/")
        groups = ["system:authenticated"]
        if user.startswith("system:serviceaccount:"):
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
        attributes = {
            "namespace": asked.namespace,
            "verb": verb,
            "group": API_GROUPS[asked.api],
            "resource": resource,
            "subresource": subresource,
        }
        review = {"user": user, "groups": groups, "resourceAttributes": attributes}
        self.requests += 1
        try:
            verdict = await reviewed(self._api, review)
        except (KubeError, msgspec.DecodeError) as error:
            self.notes.append(f"Whether {user} may read the metric is not known: {error}")
            return None
        return Access(user, verdict.allowed, verdict.reason)

    async def read(self, path: str) -> Response:
        """Return the answer at ``path``; raises ``KubeError``.

        An adapter whose Prometheus hangs answers 504 after two --prometheus-timeout (10 s) at
        most: one until a query may be sent, one for its answer.
        """
        self.requests += 1
        return await self._api.request("GET", path, timeout_s=30.0)

    async def get(
        self, path: str, kind: type[T], query: Mapping[str, str] | None = None, absent: str = ""
    ) -> T:
        """Return the object at ``path``; raises ``ClusterFailed``, with ``absent`` where there is
        none.
        """
        self.requests += 1
        try:
            answer = await self._api.request("GET", path, query=query, timeout_s=15.0)
            return decode(answer.body, kind)
        except (KubeError, msgspec.DecodeError) as error:
            said = absent if isinstance(error, ObjectNotFound) else ""
            raise ClusterFailed(said or f"{path}: {error}") from error


def _untrusted(found: _ApiService, condition: ApiServiceCondition) -> str:
    """Return who put another CA where the adapter keeps its own; "": nobody did."""
    entries = found.metadata.managed_fields
    writer = next((e.manager for e in entries if "f:caBundle" in e.fields_v1.get("f:spec", ())), "")
    if "x509" not in condition.message or not writer or writer.startswith("podscale"):
        return ""
    return (
        f". Its caBundle was overwritten by {writer!r}: let only the server behind it write there "
        "(KEDA's operator leaves it alone with --enable-apiservice-patching=false)"
    )
