"""What is not known about a controller is not taken for its absence."""

import time
from typing import Any

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from podscale.kube.client.errors import (
    ApiUnreachable,
    Forbidden,
    KubeError,
    ObjectNotFound,
    ServerFailed,
)
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode
from podscale.kube.discovery import KindResources
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from tests.unit.vpa.test_stores import NoKinds
from vpa.admission.patches.patch import BoostSettings
from vpa.admission.validation import VpaGates
from vpa.admission.webhook import ReviewAnswer, ReviewedResource, ReviewRequest, Webhook
from vpa.stores import VpaStores

POD = b"""{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "ownerReferences":
[{"kind": "ReplicaSet", "name": "web-7d4", "uid": "u", "apiVersion": "apps/v1",
"controller": true}]}, "spec": {"containers": [{"name": "app"}]}}"""

VPA = b"""{"metadata": {"name": "any", "namespace": "shop"}, "spec": {"targetRef":
{"kind": "Deployment", "name": "any", "apiVersion": "apps/v1"}}}"""


class Failing:
    """A connection on which every GET fails."""

    def __init__(self, error: KubeError) -> None:
        self.error = error

    async def request(self, *_given: Any, **_more: Any) -> Any:
        raise self.error


class Widgets:
    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        return (Resource("example.com", "v1", "widgets", "Widget"),)


class Counted:
    def admitted(self, resource: str, outcome: str, seconds: float) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(ServerFailed(500, "InternalError", "etcd"), "error", id="nobody-can-say"),
        pytest.param(ObjectNotFound(404, "NotFound", "no"), "skipped", id="it-is-not-there"),
        pytest.param(Forbidden(403, "Forbidden", "no"), "skipped", id="it-may-not-be-read"),
    ],
)
async def test_a_pod_whose_new_replica_set_cannot_be_read_counts_as_an_error(
    error: KubeError, outcome: str
) -> None:
    answer, reasons = await reviewed(Failing(error), NoKinds(), POD)
    assert answer.outcome == outcome
    assert not answer.patch
    assert reasons == (["OwnerUnknown"] if outcome == "error" else [])


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden(403, "Forbidden", "no"), id="may-not-be-read"),
        pytest.param(ApiUnreachable("no answer", is_timeout=True), id="hangs"),
    ],
)
async def test_a_pod_of_a_scale_that_nobody_can_tell_counts_as_an_error(error: KubeError) -> None:
    pod = POD.replace(b"ReplicaSet", b"Widget").replace(b"apps/v1", b"example.com/v1")
    answer, reasons = await reviewed(Failing(error), Widgets(), pod)
    assert (answer.outcome, reasons) == ("error", ["OwnerUnknown"])


async def reviewed(api: Any, kinds: KindResources, pod: bytes) -> tuple[ReviewAnswer, list[str]]:
    """Return the answer to a pod, and the reasons that are logged."""
    stores = VpaStores(api, kinds, needs_pods=False)
    boost: Any = BoostSettings
    gates: Any = VpaGates
    webhook = Webhook(stores, Counted().admitted, boost=boost, gates=gates)
    stores.vpas.accept(decode(VPA, StoredVpa))
    asked = ReviewRequest("1", ReviewedResource("", "pods"), "shop", "CREATE", Raw(pod))
    with capture_logs() as logs:
        answer = await webhook._answer(asked)
    return answer, [entry["reason"] for entry in logs if "reason" in entry]


async def test_a_kind_that_may_not_be_listed_is_said_to_be_unreadable_not_absent() -> None:
    api: Any = None
    stores = VpaStores(api, NoKinds())
    target = CrossVersionObjectReference(kind="Deployment", name="web", api_version="apps/v1")
    deployments = stores.workloads.by_kind["Deployment"]
    error = Forbidden(403, "Forbidden", "deployments.apps is forbidden")
    deployments.apply(WatchBroken("no", error), scope="", now=time.monotonic())
    told = (await stores.workloads.resolve("shop", target)).unsupported or ""
    assert "does not exist" not in told
    assert "deployments.apps is forbidden" in told
    fill(deployments)
    told = (await stores.workloads.resolve("shop", target)).unsupported or ""
    assert told.endswith("Deployment shop/web does not exist")
