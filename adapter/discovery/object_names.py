"""Which names and namespaces can be asked for: those that objects of the kind can have.

A name in a path is whatever a client writes, and a rule may put it into its query as it is
(``.LabelValuesByName``). What no object can be called is therefore no question: it gets the
404 of "no sample" before there is a query. Follows ``pkg/api/validation`` of apimachinery.
"""

import re
from collections.abc import Sequence

from podscale.core.selectors.labels import is_label, is_subdomain
from podscale.kube.client.resource import NAMESPACES

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


def problem(resource: str, namespace: str, name: str) -> str:
    """Return why there can be no such object; "": there can.

    ``namespace`` "" stands for none, ``name`` ``*`` for every one.
    """
    if namespace and not is_label(namespace):
        return f"no namespace can be called {namespace!r}"
    if name != EVERY and not is_name(resource, name):
        return f"none of the {resource} can be called {name!r}"
    return ""
