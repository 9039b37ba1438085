"""What is kept beside the objects of the cluster takes little, however they are written."""

import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest

from hpa.cluster.record import AutoscalerRecord, Catalog
from hpa.cluster.stores import kept_autoscaler
from hpa.decide.observation import Scale
from hpa.decide.selection import check
from hpa.decide.settings import Settings
from podscale.kube.client.wire import decode
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import Autoscaler
from tests.unit.hpa.decide.situations import listed, seen, web
from tests.unit.hpa.world import hpa_object

MIB = 1024 * 1024
Growth = Callable[[], int]


@pytest.fixture
def growth() -> Iterator[Growth]:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


class Nobody:
    def changed(self, record: AutoscalerRecord, is_new: bool) -> None: ...

    def updated(self, record: AutoscalerRecord, old: Autoscaler) -> None: ...

    def gone(self, record: AutoscalerRecord, *, is_last: bool) -> None: ...


def autoscaler(name: str, version: int, metrics: int, text: str = "m") -> Autoscaler:
    made = hpa_object(name)
    made["metadata"]["resourceVersion"] = str(version)
    made["metadata"]["generation"] = version
    made["spec"]["metrics"] = [
        {"type": "External", "external": {
            "metric": {"name": f"{text}-{version}-{number}"},
            "target": {"type": "Value", "value": "5"},
        }}
        for number in range(metrics)
    ]  # fmt: skip
    return decode(msgspec.json.encode(made), Autoscaler)


def test_metrics_that_an_autoscaler_had_before_are_not_kept(growth: Growth) -> None:
    store: Store[Autoscaler] = Store(keep=kept_autoscaler)
    catalog = Catalog(store, Nobody())
    for version in range(1, 51):
        store.accept(autoscaler("web", version, 100, "m" * 900))
    assert len(catalog) == 1
    assert growth() < 2 * MIB


def test_long_selectors_are_not_kept(growth: Growth) -> None:
    for number in range(30):
        observed = seen(web(), 1, listed(), ())
        selector = f"app in ({','.join(f'a{number}b{place}' for place in range(5_000))})"
        assert check(observed, Scale(1, 1, selector), Settings()) is None
    assert growth() < MIB
