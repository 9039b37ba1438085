"""What a tenant writes fills little memory, whatever fills its 1.5 MB, or is told and not kept."""

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from hpa.cluster.stores import TargetWorkload, kept_autoscaler, kept_workload
from podscale.kube.client.resource import DEPLOYMENTS
from podscale.kube.client.wire import WatchEvent, decode, decoder, encode
from podscale.kube.informer.list_watch import Changes, WatchSource, _event
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.kube.objects.scale import CronJob, ReplicationController, Workload
from podscale.kube.objects.vpa import StoredVpa
from vpa.stores import StoredLimitRange

Spec = Mapping[str, Any]
LARGEST_BYTES = 1_500_000  # of an object: what etcd takes
KEPT_BYTES = 3 * 2**20


def labels(count: int) -> dict[str, str]:
    return {f"{each:05x}": "" for each in range(count)}


def in_selector(count: int) -> Spec:
    return {"selector": {"matchLabels": labels(count)}}


def in_values(count: int) -> Spec:
    one = {"key": "a", "operator": "In", "values": [f"{each:05x}" for each in range(count)]}
    return {"selector": {"matchExpressions": [one]}}


def in_metrics(count: int) -> Spec:
    return {"metrics": [{"external": {"metric": {"name": f"m{each}"}}} for each in range(count)]}


def in_metric(count: int) -> Spec:
    return {"metrics": [{"external": {"metric": {"name": "m", **in_selector(count)}}}]}


def in_policies(count: int) -> Spec:
    return {"behavior": {"scaleUp": {"policies": [{"value": each} for each in range(count)]}}}


def in_template(count: int) -> Spec:
    return {"jobTemplate": {"spec": {"template": {"metadata": {"labels": labels(count)}}}}}


CASES: list[tuple[Any, Callable[[int], Spec], Any]] = [
    (Autoscaler, in_metrics, kept_autoscaler),
    (Autoscaler, in_metric, kept_autoscaler),
    (Autoscaler, in_policies, kept_autoscaler),
    (Autoscaler, labels, kept_autoscaler),  # fields that are none of these
    (TargetWorkload, in_selector, kept_workload),
    (Workload, in_selector, None),
    (Workload, in_values, None),
    (ReplicationController, lambda count: {"selector": labels(count)}, None),
    (PodDisruptionBudget, in_selector, None),
    (CronJob, in_template, None),
    (StoredVpa, lambda count: {"recommenders": [{}] * count}, None),
    (StoredLimitRange, lambda count: {"limits": [{}] * count}, None),
]


def written(spec: Spec) -> bytes:
    metadata = {"namespace": "shop", "name": "web", "resourceVersion": "5"}
    return encode({"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(("kind", "spec", "keep"), CASES)
def test_whatever_fills_an_object_little_is_kept_of_it(
    kind: Any, spec: Callable[[int], Spec], keep: Any
) -> None:
    count = 300  # what anybody has is read
    text = written(spec(count))
    Store(keep=keep).apply(Changes([("ADDED", decode(text, kind))], "5"), scope="", now=0.0)
    while True:
        store: Store[Any] = Store(keep=keep)
        tracemalloc.start()
        try:
            store.apply(Changes([("ADDED", decode(text, kind))], "5"), scope="", now=0.0)
            assert tracemalloc.get_traced_memory()[0] < KEPT_BYTES
        finally:
            tracemalloc.stop()
        count = count * 5 // 4
        text = written(spec(count))
        assert len(text) < LARGEST_BYTES
        if not is_read(text, kind):
            break
    with pytest.raises(msgspec.DecodeError, match="spec is too long"):
        decode(text, kind)


def is_read(text: bytes, kind: Any) -> bool:
    try:
        decode(text, kind)
    except msgspec.DecodeError:
        return False
    return True


def test_an_object_that_is_too_long_is_told_and_no_longer_known() -> None:
    source = WatchSource(DEPLOYMENTS, Workload)
    line = b'{"type":"MODIFIED","object":%b}' % written(in_selector(70_000))
    with capture_logs() as logs:
        event = _event(source, decoder(WatchEvent[Workload]).decode, line)
    assert isinstance(event, tuple)
    assert (event[0], event[1].metadata.name) == ("DELETED", "web")
    assert [(each["event"], each["name"]) for each in logs] == [("object not readable", "shop/web")]
    assert "spec is too long" in logs[0]["error"]
