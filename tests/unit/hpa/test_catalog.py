"""What an entry makes of states that cannot be read whole."""

from hpa.cluster.record import AutoscalerRecord
from podscale.kube.client.wire import decode, encode
from podscale.kube.objects.autoscaler import Autoscaler
from tests.unit.hpa.world import hpa_object


def autoscaler(value: str) -> Autoscaler:
    """An autoscaler whose status shows a metric of ``value``."""
    made = hpa_object("web")
    external = {"metric": {"name": "queue"}, "current": {"value": value}}
    made["status"] = {
        "currentReplicas": 3,
        "currentMetrics": [{"type": "External", "external": external}],
    }
    return decode(encode(made), Autoscaler)


def test_an_amount_in_the_status_that_is_none_is_not_known() -> None:
    good, bad = autoscaler("3"), autoscaler("three")
    entry = AutoscalerRecord.of(bad)
    assert entry.hpa is not None
    assert not entry.problem
    (metric,) = entry.hpa.status.metrics
    assert (metric.name, metric.value_milli) == ("queue", None)
    assert entry.hpa.status.current_replicas == 3
    assert not entry.read(good, bad), "only the status changed"
    assert entry.hpa.status.metrics[0].value_milli == 3000
