"""Which objects a request means, from watches: no LIST per request.

Pods come from the pod store (also for everybody else in the process), other kinds from
metadata-only watches that start when a kind is first asked for. What may not be listed in
all namespaces is watched in those that are asked for.

Names in a path are whatever a client writes, and a rule may put them into its query as they are
(``.LabelValuesByName``). What no object can be called is therefore no question: it gets the
404 of "no sample" before there is a query. Follows ``pkg/api/validation`` of apimachinery.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from podscale.core.pod_state import PodPhase
from podscale.core.selectors.labels import is_label, is_subdomain
from podscale.core.selectors.selector import Selector
from podscale.kube.client.resource import NAMESPACES, NODES, PODS, Resource
from podscale.kube.columns.cohorts import Version
from podscale.kube.columns.metadata import MetadataStore, OnDemandMetadata
from podscale.kube.columns.pods import PodStore


class Names(Struct, frozen=True):
    """Names in the order of a LIST, and how many objects there are to choose from."""

    names: tuple[str, ...]
    known: int | None = None  # objects of the kind in the namespace; None: not counted


class WatchedObjects:
    """The objects of the cluster, by name and label."""

    def __init__(self, pods: PodStore, others: OnDemandMetadata) -> None:
        self.pods = pods
        self._others = others

    async def names(self, resource: Resource, namespace: str, selector: Selector) -> Names:
        """Return the objects that match; raises ``KubeError`` when they cannot be listed."""
        if resource.group_resource != PODS.group_resource:
            store = await self._others.describe(resource, namespace=namespace)
            return Names(tuple(store.names(namespace, selector)))
        if not self.is_refused:
            return self.pod_names(namespace, selector)
        if not namespace:
            self.require_pods()
        own = await self._others.within(resource, namespace)
        return Names(tuple(own.names(namespace, selector)), own.count(namespace))

    @property
    def is_refused(self) -> bool:
        """Whether pods of single namespaces are all there is, until all have been listed."""
        return self.pods.refusal is not None

    def require_pods(self) -> None:
        """Raise ``Forbidden`` where the pods of all namespaces may not be listed."""
        if (refusal := self.pods.refusal) is not None:
            raise refusal.with_traceback(None)

    def pod_names(self, namespace: str, selector: Selector) -> Names:
        """Return the pods that match, in any phase."""
        found = self.pods.names(namespace, selector) if namespace else ()
        return Names(tuple(found), self.pods.count(namespace))

    def count(self, namespace: str) -> int:
        return self.pods.count(namespace)

    def changed(self, namespace: str) -> int:
        """Return a number that is another one after every change of pods in ``namespace``."""
        return self.pods.changed(namespace)

    def unchanged(
        self, namespace: str, selector: Callable[[], Selector], before: Version | None
    ) -> Version:
        """Return ``before`` as long as the pods that match are the same as then."""
        return self.pods.unchanged(namespace, selector, before)

    def same_pods(self, namespace: str, selector: Selector) -> Callable[[], bool]:
        """Return what tells, later, whether the pods that match are still as they are now."""
        version = self.unchanged(namespace, lambda: selector, None)
        changed = self.changed(namespace)

        def is_same() -> bool:
            nonlocal changed
            # Mostly nothing changed in the whole namespace, which is cheaper to see.
            if (now := self.changed(namespace)) != changed:
                if self.unchanged(namespace, lambda: selector, version) is not version:
                    return False
                changed = now
            return True

        return is_same

    def names_at(self, version: Version) -> tuple[str, ...]:
        """Return the names of the pods that ``version`` is of, sorted."""
        return tuple(self.pods.names_at(version))

    def running(self, namespace: str, selector: Selector) -> Names:
        """Return the pods that match and run, as ``kubectl top`` and the HPA count them."""
        found = self.pods.select(namespace, selector)
        running = found.phase == PodPhase.RUNNING
        names = tuple(name for name, runs in zip(found.names, running, strict=True) if runs)
        return Names(names, self.pods.count(namespace))

    def namespaces(self) -> list[str]:
        """Return the namespaces that have pods, sorted."""
        return sorted(set(self.pods.select_all(None).namespaces))

    def pod_labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the labels of a pod; ``None``: there is no such pod, or it does not run."""
        view = self.pods.get(namespace, name)
        return view.labels if view is not None and view.phase == PodPhase.RUNNING else None

    async def nodes(self) -> MetadataStore:
        """Return the nodes; raises ``KubeError``."""
        return await self._others.describe(NODES)


EVERY = "*"

# Kinds whose names the API server takes as any path segment. Of those only the ones that mean
# themselves in PromQL, in and outside of quotes: "system:node", "2001:db8::1".
_SEGMENT = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_WITH_SEGMENTS = frozenset({
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "certificatesigningrequests.certificates.k8s.io",
    "clustertrustbundles.certificates.k8s.io",
    "ipaddresses.networking.k8s.io",
})  # fmt: skip


def is_name(resource: str, name: str) -> bool:
    """Return whether an object of ``resource[.group]`` can be called so."""
    if resource == NAMESPACES.group_resource:
        return is_label(name)
    if resource in _WITH_SEGMENTS:
        return name not in (".", "..") and _SEGMENT.fullmatch(name) is not None
    return is_subdomain(name)


def askable(resource: str, names: Sequence[str]) -> Sequence[str]:
    """Return those of ``names``, which objects have, that can be asked for."""
    if resource not in _WITH_SEGMENTS:
        return names  # the API server saw to it
    return [name for name in names if is_name(resource, name)]


def name_problem(resource: str, namespace: str, name: str) -> str:
    """Return why there can be no such object; "": there can.

    ``namespace`` "" stands for none, ``name`` ``*`` for every one.
    """
    if namespace and not is_label(namespace):
        return f"no namespace can be called {namespace!r}"
    if name != EVERY and not is_name(resource, name):
        return f"none of the {resource} can be called {name!r}"
    return ""
