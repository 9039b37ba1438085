"""The case files of prometheus-adapter, one parameter per JSON line.

``PODSCALE_CASES`` names a directory whose files of the same names are run instead; the
fixtures C1* to C3*, C9* and C10* always come from the repository's own copy.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper

_OWN = Path(__file__).parent / "cases" / "adapter"
_FIXTURES = re.compile(r"C([1-3]|9|10)(-\d+)?$")


def rows(name: str) -> list[Any]:
    """Return the rows of ``B1`` or ``A2-2``."""
    path = _OWN / f"{name}.jsonl"
    elsewhere = os.environ.get("PODSCALE_CASES")
    if elsewhere and not _FIXTURES.match(name):
        for given in (Path(elsewhere) / "adapter" / path.name, Path(elsewhere) / path.name):
            if given.is_file():
                path = given
                break
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def cases(*names: str) -> pytest.MarkDecorator:
    """Parametrize ``row`` over the rows of files; ids are ``C5-12``, counted from 1."""
    return pytest.mark.parametrize(
        "row",
        [
            pytest.param(row, id=f"{name}-{number}")
            for name in names
            for number, row in enumerate(rows(name), 1)
        ],
    )


def numbered(name: str) -> list[tuple[str, Any]]:
    """Return id and row of every row of a file."""
    return [(f"{name}-{number}", row) for number, row in enumerate(rows(name), 1)]


_ROOT = {"namespaces", "nodes", "persistentvolumes", "ingressclasses", "storageclasses"}
_KINDS = {
    "v1": "Pod Service Namespace Node PersistentVolume PersistentVolumeClaim ConfigMap Endpoints "
    "ReplicationController",
    "apps/v1": "Deployment StatefulSet DaemonSet ReplicaSet",
    "batch/v1": "Job CronJob",
    "networking.k8s.io/v1": "Ingress IngressClass",
    "storage.k8s.io/v1": "StorageClass",
    "cheese.io/v1alpha1": "Brand",
}


def resource(api_version: str, kind: str, namespaced: bool | None = None) -> Resource:
    """Return the resource of a kind, its names made as Kubernetes makes them."""
    singular = kind.lower()
    if singular == "endpoints":
        plural = singular
    else:
        plural = f"{singular}es" if singular.endswith(("ss", "x", "ch")) else f"{singular}s"
    group, _, version = api_version.rpartition("/")
    if namespaced is None:
        namespaced = plural not in _ROOT
    return Resource(group, version, plural, kind, namespaced, singular)


def served_resources() -> list[Resource]:
    """Return the resources that parts B and C have in common, in discovery order."""
    return [resource(v, kind) for v, kinds in _KINDS.items() for kind in kinds.split()]


def part_b_resources() -> list[Resource]:
    """Return the resources of cases part B."""
    return [
        *served_resources(),
        Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, "nodemetrics"),
        Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True, "podmetrics"),
    ]


def part_b_mapper() -> Mapper:
    """Return the RESTMapper of cases part B."""
    return Mapper(part_b_resources())
