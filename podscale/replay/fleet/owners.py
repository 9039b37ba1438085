"""Which workload a pod belongs to: as kube-state-metrics told, else as its name says. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

# What the controllers append: a template's hash, five letters of a pod, an ordinal, minutes.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_SHAPES = (
    ("CronJob", re.compile(rf"(.+)-\d{{8,10}}-{_LETTERS}{{5}}")),
    ("Deployment", re.compile(rf"(.+)-{_LETTERS}{{6,10}}-{_LETTERS}{{5}}")),
    ("StatefulSet", re.compile(r"(.+)-\d{1,4}")),
    ("DaemonSet", re.compile(rf"(.+)-{_LETTERS}{{5}}")),
)
# A Deployment's ReplicaSet and a CronJob's Job, where nobody told of them.
_PARENTS = {
    "ReplicaSet": ("Deployment", re.compile(rf"(.+)-{_LETTERS}{{6,10}}")),
    "Job": ("CronJob", re.compile(r"(.+)-\d{8,10}")),
}


class FleetWorkload(NamedTuple):
    """What a person sizes."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"


Owned = Mapping[tuple[str, str], tuple[str, str]]  # (namespace, name) → kind and name of its owner


def workload_of(
    namespace: str, pod: str, pods: Owned, parents: Mapping[str, Owned]
) -> FleetWorkload:
    """Return the workload; ``parents`` are owners by the kind of what is owned."""
    kind, name = pods.get((namespace, pod)) or _guessed(pod)
    if kind in ("", "<none>", "Node"):
        return FleetWorkload(namespace, "Pod", pod)  # nobody makes it anew
    above = parents.get(kind, {}).get((namespace, name))
    if above is not None and above[0] not in ("", "<none>"):
        return FleetWorkload(namespace, *above)
    if above is None and kind in _PARENTS:
        parent, shape = _PARENTS[kind]
        if found := shape.fullmatch(name):
            return FleetWorkload(namespace, parent, found[1])
    return FleetWorkload(namespace, kind, name)


def _guessed(pod: str) -> tuple[str, str]:
    for kind, shape in _SHAPES:
        if found := shape.fullmatch(pod):
            return kind, found[1]
    return "", pod
