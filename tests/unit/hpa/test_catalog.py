"""What an entry makes of states that cannot be read."""

from hpa.catalog import Entry
from hpa.objects import Autoscaler
from podscale.kube.wire import decode, encode
from tests.unit.hpa.world import hpa_object


def autoscaler(value: str) -> Autoscaler:
    """An autoscaler whose status shows a metric of ``value``."""
    made = hpa_object("web")
    external = {"metric": {"name": "queue"}, "current": {"value": value}}
    made["status"] = {"currentMetrics": [{"type": "External", "external": external}]}
    return decode(encode(made), Autoscaler)


def test_a_status_that_cannot_be_read_is_a_problem_of_its_object_and_passes() -> None:
    good, bad = autoscaler("3"), autoscaler("three")
    entry = Entry(good)
    assert entry.hpa is not None
    entry.read(bad, good)
    assert entry.hpa is None
    assert "three" in entry.problem
    assert entry.read(good, bad)
    assert entry.hpa is not None
    assert not entry.problem
