"""A Deployment `web` under an HPA, and its load."""

from typing import Any

import msgspec

from hpa.decide.settings import Settings
from podscale.kube.client.wire import decode, format_micro_time
from podscale.kube.objects.cluster import Lease
from tests.unit.hpa.world import Cluster, deployment_object, hpa_object, pod_object

SETTINGS = Settings(sync_period_s=15.0)


def web(cluster: Cluster, size: int, *, most: int = 10, **spec: Any) -> None:
    cluster.put(hpa_object("web", most=most, **spec), deployment_object("web", size))
    cluster.put_pods(*(pod_object("web", n) for n in range(size)))


def as_read(seconds: float) -> float:
    """Return a time as a Lease's decoder makes it."""
    text = msgspec.json.encode({"metadata": {}, "spec": {"renewTime": format_micro_time(seconds)}})
    found = decode(text, Lease).spec.renew_time
    assert found is not None
    return found


def load(cluster: Cluster, milli: int) -> None:
    cluster.provider.usage = lambda _question, _pod: milli
