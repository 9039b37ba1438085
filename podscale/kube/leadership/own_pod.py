"""The pod we run in, as its manifest tells it: POD_NAMESPACE and POD_NAME.

Outside of a pod there is neither; then a process is known by its host and number.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from podscale.kube.client.api import Api
from podscale.kube.client.credentials import SERVICE_ACCOUNT
from podscale.kube.leadership.fenced_api import leader_label
from podscale.kube.objects.cluster import ObjectReference


def own_namespace(default: str) -> str:
    """Return the namespace of our pod. Blocking. NAMESPACE is what upstream's VPA reads."""
    given = os.environ.get("POD_NAMESPACE", "") or os.environ.get("NAMESPACE", "")
    if given:
        return given
    file: Path = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else default


def identity() -> str:
    """Return who holds a Lease: the pod, or this process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


def own_pod() -> ObjectReference | None:
    """Return our pod as events name it; None where the manifest does not tell it."""
    pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if not pod or not namespace:
        return None
    return ObjectReference(kind="Pod", namespace=namespace, name=pod, api_version="v1")


def leader_label_of(api: Api, part: str) -> Callable[[bool], Awaitable[None]] | None:
    """Return what labels our pod as the leader of ``part``; None outside of a pod."""
    pod = own_pod()
    if pod is None:
        return None
    return leader_label(api, namespace=pod.namespace, pod=pod.name, part=part)
