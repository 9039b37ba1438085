"""Labels of pods that are gone, as far as the name still tells whose they were.

Controllers name their pods after themselves, and ReplicaSets are kept for a while. The
selector's labels are those that a VPA of the controller selects by.
"""

import re
from collections.abc import Mapping

from podscale.kube.objects.scale import CronJob, ReplicationController, Workload
from vpa.targets import Workloads

# Kubernetes' random parts have no vowels, so that a word of a name is not taken for one.
_RANDOM = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
_HASH = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{1,10}")
_MINUTES = re.compile(r"(?P<owner>.+)-[0-9]+")


class PodOwners:
    """Finds controllers by the names of their pods."""

    def __init__(self, workloads: Workloads) -> None:
        self._workloads = workloads

    def labels(self, namespace: str, pod: str) -> Mapping[str, str] | None:
        """Return labels that a pod of this name had; None if no controller fits."""
        direct = _RANDOM.fullmatch(pod)
        tries = []
        if direct:
            owner = direct["owner"]
            tries += [(kind, owner) for kind in ("ReplicaSet", "DaemonSet", "Job")]
            tries.append(("ReplicationController", owner))
            for kind, pattern in (("Deployment", _HASH), ("CronJob", _MINUTES)):
                above = pattern.fullmatch(owner)
                tries += [(kind, above["owner"])] if above else []
        numbered = _MINUTES.fullmatch(pod)
        if numbered:
            tries.append(("StatefulSet", numbered["owner"]))
        for kind, name in tries:
            found = self._workloads.find(namespace, kind, name)
            labels = _labels(found) if found is not None else None
            if labels:
                return labels
        return None


def _labels(found: Workload | ReplicationController | CronJob) -> Mapping[str, str] | None:
    if isinstance(found, CronJob):
        return found.spec.job_template.spec.template.metadata.labels
    if isinstance(found, ReplicationController):
        return found.spec.selector
    selector = found.spec.selector
    return selector.match_labels if selector is not None else None
