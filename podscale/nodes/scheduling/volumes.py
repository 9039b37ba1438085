"""What a pod's claims mean for its node. Pure.

Follows VolumeRestrictions, VolumeBinding and VolumeZone, Kubernetes 1.37. Not followed: how much
a class can still provision, disks of the pod's own, limits of CSI volumes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from podscale.kube.client.wire import Quantity
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.cluster import Node
from podscale.nodes.scheduling import objects
from podscale.nodes.scheduling.cluster_view import ClusterView, NodeRefusal, PodRefusal

_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"
_BY_HAND = ("", "kubernetes.io/no-provisioner")
_TOPOLOGY = ("topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
_LABELS = tuple(prefix + each for prefix in _TOPOLOGY for each in ("zone", "region"))


class PodClaims:
    """The claims of one pod and the volumes that they are bound to."""

    def __init__(self, pod: objects.ScheduledPod, cluster: ClusterView) -> None:
        self._pod = pod
        namespace = pod.metadata.namespace
        claims = {each.metadata.name: each for each in cluster.claims
                  if each.metadata.namespace == namespace}  # fmt: skip
        self._claims = {name: claims.get(name) for name, _ in pod.claim_names()}
        self._classes = {each.metadata.name: each for each in cluster.classes}
        self._volumes = {each.metadata.name: each for each in cluster.volumes}

    def refusal(self) -> PodRefusal | None:
        """Return what keeps the pod from every node."""
        names = list(self._pod.claim_names())
        for name, is_ephemeral in names:
            if self._claims[name] is None and not is_ephemeral:
                return PodRefusal("VolumeRestrictions", f'persistentvolumeclaim "{name}" not found')
        for name, _ in names:
            wrong = _wrong(name, self._claims[name])
            if wrong:
                return PodRefusal("VolumeBinding", wrong)
        known = [each for each in self._claims.values() if each is not None]
        if any(not _is_bound(each) and not self._waits(each) for each in known):
            text = "pod has unbound immediate PersistentVolumeClaims"
            return PodRefusal("VolumeBinding", text)
        for claim in known:
            volume = claim.spec.volume_name
            if volume and volume not in self._volumes:
                return PodRefusal("VolumeZone", f'persistentvolume "{volume}" not found')
        return None

    def in_use(self, assigned: Iterable[objects.ScheduledPod]) -> NodeRefusal | None:
        """Return what refuses on every node, because another pod has what only one may have."""
        known = [each for each in self._claims.values() if each is not None]
        alone = {each.metadata.name for each in known
                 if "ReadWriteOncePod" in each.spec.access_modes}  # fmt: skip
        if not alone:
            return None
        for other in assigned:
            if other.metadata.namespace == self._pod.metadata.namespace:
                used = alone.intersection(name for name, _ in other.claim_names())
                if used:
                    text = (
                        "node(s) unavailable due to PersistentVolumeClaim with "
                        "ReadWriteOncePod access mode already in-use by another pod"
                    )
                    return NodeRefusal("VolumeRestrictions", (text,), min(used))
        return None

    def refusals(self, node: Node) -> Iterator[NodeRefusal]:
        """Yield what refuses the pod on one node."""
        bound = list(self._bound())
        messages = []
        far = [each.metadata.name for each in bound if not _is_reached(each, node)]
        if far:
            messages.append("node(s) didn't match PersistentVolume's node affinity")
        if not self._finds_volumes(node):
            messages.append("node(s) didn't find available persistent volumes to bind")
        if messages:
            yield NodeRefusal("VolumeBinding", tuple(messages), ", ".join(far))
        for volume in bound:
            if not _is_near(volume, node):
                text = "node(s) had no available volume zone"
                yield NodeRefusal("VolumeZone", (text,), volume.metadata.name)
                break

    def _bound(self) -> Iterator[objects.PersistentVolume]:
        for claim in self._claims.values():
            if claim is not None and claim.spec.volume_name in self._volumes:
                yield self._volumes[claim.spec.volume_name]

    def _finds_volumes(self, node: Node) -> bool:
        # For claims that wait for their first consumer; the smallest takes first.
        late = [each for each in self._claims.values() if each is not None and self._waits(each)]
        taken: set[str] = set()
        for claim in sorted(late, key=lambda each: _storage(each.spec.resources.requests)):
            selected = (claim.metadata.annotations or {}).get(_SELECTED)
            if selected is not None and selected != node.metadata.name:
                return False
            found = None if selected is not None else self._volume_for(claim, node, taken)
            if found is not None:
                taken.add(found)
            elif not self._is_provisioned(claim, node):
                return False
        return True

    def _volume_for(
        self, claim: objects.VolumeClaim, node: Node, taken: Collection[str]
    ) -> str | None:
        least, wanted = None, _storage(claim.spec.resources.requests)
        for name, volume in self._volumes.items():
            spec = volume.spec
            is_ours = spec.claim_ref is not None and _refers(spec.claim_ref, claim)
            if (
                name in taken
                or spec.storage_class_name != claim.spec.storage_class_name
                or (spec.claim_ref is not None and not is_ours)
                or _storage(spec.capacity) < wanted
                or spec.volume_mode != claim.spec.volume_mode
                or volume.metadata.deletion_timestamp is not None
            ):
                continue
            if is_ours:
                return name if _is_reached(volume, node) else None
            selector = claim.spec.selector
            if (
                volume.status.phase == "Available"
                and (selector is None or objects.matches_labels(selector, volume.metadata.labels))
                and _is_reached(volume, node)
                and set(claim.spec.access_modes) <= set(spec.access_modes)
            ):
                least = min(filter(None, (least, (_storage(spec.capacity), name))))
        return None if least is None else least[1]

    def _is_provisioned(self, claim: objects.VolumeClaim, node: Node) -> bool:
        known = self._classes[claim.spec.storage_class_name]
        if known.provisioner in _BY_HAND:
            return False
        labels, terms = node.metadata.labels or {}, known.allowed_topologies
        return not terms or any(
            term.match_label_expressions
            and all(labels.get(each.key) in each.values for each in term.match_label_expressions)
            for term in terms
        )

    def _waits(self, claim: objects.VolumeClaim) -> bool:
        known = self._classes.get(claim.spec.storage_class_name)
        waits = known is not None and known.volume_binding_mode == "WaitForFirstConsumer"
        return waits and not claim.spec.volume_name


def _wrong(name: str, claim: objects.VolumeClaim | None) -> str:
    if claim is None:
        text = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{text} "{name}"'
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _is_bound(claim: objects.VolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and _BOUND in (claim.metadata.annotations or {})


def _is_reached(volume: objects.PersistentVolume, node: Node) -> bool:
    required = volume.spec.node_affinity.required
    return required is None or required.matches(node)


def _refers(reference: objects.ClaimRef, claim: objects.VolumeClaim) -> bool:
    meta = claim.metadata
    is_named = (reference.name, reference.namespace) == (meta.name, meta.namespace)
    return is_named and reference.uid in ("", meta.uid)


def _storage(has: Mapping[str, Quantity] | None) -> int:
    return amounts(has).get("storage", 0)


def _is_near(volume: objects.PersistentVolume, node: Node) -> bool:
    labels = node.metadata.labels or {}
    if not any(label in labels for label in _LABELS):
        return True  # a cluster without zones
    for label in _LABELS:
        wanted = (volume.metadata.labels or {}).get(label)
        if wanted is None:
            continue
        has = labels.get(label, labels.get(label.replace(_TOPOLOGY[1], _TOPOLOGY[0])))
        if has not in wanted.split("__"):  # a volume of several zones
            return False
    return True
