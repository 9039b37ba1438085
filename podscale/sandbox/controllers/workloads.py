"""The controllers of Deployments, StatefulSets and PodDisruptionBudgets, in short.

A Deployment has one current ReplicaSet at full size and empties the others at once;
pods go through admission as those of a real controller do. Status is kept as upstream
keeps it, as far as autoscalers read it.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from podscale.sandbox.http.subresources import allowance
from podscale.sandbox.objects.objects import SandboxObjects, is_ready
from podscale.sandbox.objects.storage import Key, Object, changes
from podscale.serving.status import StatusError

CreatePod = Callable[[str, Object], Awaitable[object]]
_DEPLOYMENTS = ("apps", "deployments")
_REPLICASETS = ("apps", "replicasets")
_STATEFULSETS = ("apps", "statefulsets")
_PODS = ("", "pods")
_NAMES = {"Deployment": _DEPLOYMENTS, "ReplicaSet": _REPLICASETS, "StatefulSet": _STATEFULSETS}
_RETRY_S = 1.0
_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
# Safe letters, as in the names that upstream makes.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class WorkloadControllers:
    """Reconciles whatever changed."""

    def __init__(self, objects: SandboxObjects, create_pod: CreatePod) -> None:
        self._objects = objects
        self._create_pod = create_pod

    async def run(self) -> None:
        """Reconcile for ever."""
        async with asyncio.TaskGroup() as retries:
            await self._follow(retries)

    async def _follow(self, retries: asyncio.TaskGroup) -> None:
        tables = (_DEPLOYMENTS, _REPLICASETS, _STATEFULSETS, _PODS)
        async for batch in changes(self._objects.storage, tables):
            wanted: dict[tuple[str, Key], None] = {}
            for change in batch:
                content = change.now.object
                if content["kind"] in _NAMES:
                    wanted[content["kind"], change.now.key] = None
                for owner in content["metadata"].get("ownerReferences") or ():
                    if owner.get("kind") in _NAMES:
                        wanted[owner["kind"], (change.now.key[0], owner["name"])] = None
            for kind, key in wanted:
                if not await self._reconcile(kind, key):
                    retries.create_task(self._again(kind, key))

    async def _again(self, kind: str, key: Key) -> None:
        while True:
            await asyncio.sleep(_RETRY_S)
            if await self._reconcile(kind, key):
                return

    async def _reconcile(self, kind: str, key: Key) -> bool:
        """Bring one object nearer to its spec; False when it must be tried again."""
        content = self._held(kind, key)
        if content is None or content["metadata"].get("deletionTimestamp"):
            return True
        if kind == "Deployment":
            self._deployment(content)
            return True
        names = _random_names if kind == "ReplicaSet" else _ordered_names
        return await self._replicas(content, names(content))

    def _held(self, kind: str, key: Key) -> Object | None:
        return self._objects.find(self._objects.resource(_NAMES[kind][1]), *key)

    def _deployment(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        namespace = metadata["namespace"]
        digest = _digest(spec["template"])
        name = f"{metadata['name']}-{digest}"
        for held in self._owned(metadata["uid"], "replicasets"):
            wanted = spec["replicas"] if held["metadata"]["name"] == name else 0
            if held["spec"]["replicas"] != wanted:
                changed = {**held, "spec": {**held["spec"], "replicas": wanted}}
                self._objects.update("replicasets", namespace, held["metadata"]["name"], changed)
        if self._objects.find("replicasets", namespace, name) is None:
            self._objects.create("replicasets", namespace, _replica_set(deployment, name, digest))
        current = self._objects.get("replicasets", namespace, name)
        self._number(deployment, current)
        sets = self._owned(metadata["uid"], "replicasets")
        status = _deployment_status(deployment, current, sets, self._objects.now_text())
        self._write_status("deployments", deployment, status)

    def _number(self, deployment: Object, current: Object) -> None:
        """Give the ReplicaSet in use the newest revision: `kubectl rollout undo` goes by it."""
        metadata = deployment["metadata"]
        namespace, sets = metadata["namespace"], self._owned(metadata["uid"], "replicasets")
        newest = max((_revision(each) for each in sets), default=0)
        if not _revision(current) or _revision(current) < newest:
            self._annotate("replicasets", current, str(newest + 1))
            current = self._objects.get("replicasets", namespace, current["metadata"]["name"])
        if _revision(deployment) != _revision(current):
            self._annotate("deployments", deployment, str(_revision(current)))

    def _annotate(self, plural: str, content: Object, revision: str) -> None:
        namespace, name = content["metadata"]["namespace"], content["metadata"]["name"]
        held = self._objects.get(plural, namespace, name)
        annotations = {**(held["metadata"].get("annotations") or {}), _REVISION: revision}
        changed = {**held, "metadata": {**held["metadata"], "annotations": annotations}}
        self._objects.update(plural, namespace, name, changed)

    async def _replicas(self, owner: Object, names: Iterable[str]) -> bool:
        metadata, spec = owner["metadata"], owner["spec"]
        pods = [
            pod
            for pod in self._owned(metadata["uid"], "pods")
            if not pod["metadata"].get("deletionTimestamp")
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        missing = spec["replicas"] - len(pods)
        taken = {pod["metadata"]["name"] for pod in pods}
        is_done = True
        for _, name in zip(range(missing), (n for n in names if n not in taken), strict=False):
            try:
                await self._create_pod(metadata["namespace"], _pod(owner, name))
            except StatusError:  # refused by admission, or the old pod of that name still stops
                is_done = False
                break
        if missing < 0:
            for pod in sorted(pods, key=_worth)[:-missing]:
                self._objects.delete("pods", metadata["namespace"], pod["metadata"]["name"])
        if self._held(owner["kind"], (metadata["namespace"], metadata["name"])) is None:
            return True
        status = _replicas_status(owner, self._owned(metadata["uid"], "pods"))
        self._write_status(_NAMES[owner["kind"]][1], owner, status)
        return is_done

    def _owned(self, uid: str, plural: str) -> list[Object]:
        storage = self._objects.storage
        return [
            storage.table(*name).objects[key].object
            for name, key in storage.dependents(uid)
            if name[1] == plural
        ]

    def _write_status(self, plural: str, content: Object, status: dict[str, Any]) -> None:
        namespace, name = content["metadata"]["namespace"], content["metadata"]["name"]
        held = self._objects.get(plural, namespace, name)
        if {**held.get("status", {}), **status} != held.get("status"):
            self._objects.update(plural, namespace, name, {**held, "status": status}, "status")


def _revision(content: Object) -> int:
    return int((content["metadata"].get("annotations") or {}).get(_REVISION) or 0)


def _digest(template: Object) -> str:
    number = int.from_bytes(hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest())
    return "".join(_LETTERS[number // 27**place % 27] for place in range(10))


def _replica_set(deployment: Object, name: str, digest: str) -> Object:
    spec = deployment["spec"]
    template = spec["template"]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), _HASH: digest}
    selector = spec.get("selector") or {}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [_reference(deployment)]},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: digest},
            },
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


def _pod(owner: Object, name: str) -> Object:
    template = owner["spec"]["template"]
    metadata = dict(template.get("metadata") or {})
    metadata.pop("name", None)
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            **metadata,
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [_reference(owner)],
        },
        "spec": template["spec"],
    }


def _reference(owner: Object) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _random_names(owner: Object) -> Iterable[str]:
    number = int(owner["metadata"]["resourceVersion"]) * 7919
    while True:
        number += 1
        digest = hashlib.sha256(f"{owner['metadata']['uid']}{number}".encode()).digest()
        suffix = "".join(_LETTERS[byte % 27] for byte in digest[:5])
        yield f"{owner['metadata']['name']}-{suffix}"


def _ordered_names(owner: Object) -> Iterable[str]:
    return (f"{owner['metadata']['name']}-{place}" for place in range(owner["spec"]["replicas"]))


def _worth(pod: Object) -> tuple[bool, bool, str, int]:
    # Upstream's order: unscheduled first, then not ready, then the youngest.
    has_node = bool(pod["spec"].get("nodeName"))
    created = pod["metadata"]["creationTimestamp"]
    youth = "".join(chr(0x10FFFF - ord(letter)) for letter in created)
    return has_node, is_ready(pod), youth, -int(pod["metadata"]["resourceVersion"])


def _replicas_status(owner: Object, pods: list[Object]) -> dict[str, Any]:
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    ready = sum(map(is_ready, alive))
    return {
        "replicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner["metadata"]["generation"],
    }


def _deployment_status(
    deployment: Object, current: Object, sets: list[Object], now: str
) -> dict[str, Any]:
    def total(field: str, of: list[Object]) -> int:
        return sum((held.get("status") or {}).get(field, 0) for held in of)

    wanted = deployment["spec"]["replicas"]
    available = total("availableReplicas", sets)
    is_available = available >= wanted
    held = (deployment.get("status") or {}).get("conditions") or [{}]
    condition = {
        "type": "Available",
        "status": "True" if is_available else "False",
        "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
        "message": "Deployment has minimum availability."
        if is_available
        else "Deployment does not have minimum availability.",
    }
    is_same = held[0].get("status") == condition["status"]
    condition["lastTransitionTime"] = held[0]["lastTransitionTime"] if is_same else now
    return {
        "replicas": total("replicas", sets),
        "updatedReplicas": total("replicas", [current]),
        "readyReplicas": total("readyReplicas", sets),
        "availableReplicas": available,
        "unavailableReplicas": max(wanted - available, 0),
        "observedGeneration": deployment["metadata"]["generation"],
        "conditions": [condition],
    }


class Disruption:
    """The status of every PodDisruptionBudget follows its pods."""

    def __init__(self, objects: SandboxObjects) -> None:
        self._objects = objects

    async def run(self) -> None:
        """Keep the statuses for ever."""
        tables = (("policy", "poddisruptionbudgets"), ("", "pods"))
        async for batch in changes(self._objects.storage, tables):
            for namespace in {change.now.key[0] for change in batch}:
                self._count(namespace)

    def _count(self, namespace: str) -> None:
        for budget in self._objects.list("poddisruptionbudgets", namespace):
            held = budget.get("status") or {}
            status = {**held, **allowance(self._objects, budget)}
            if status != held:
                name = budget["metadata"]["name"]
                new = {**budget, "status": status}
                self._objects.update("poddisruptionbudgets", namespace, name, new, "status")
