"""What must be current before a pod is disturbed."""

import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from podscale.kube.client.errors import Forbidden
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.objects.vpa import ObjectError, StoredVpa, vpa_of
from tests.kit.stores import fill
from vpa.stores import VpaStores

API: Any = None  # nothing is asked


class NoKinds:
    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        return ()


def listened(*, but_to_cron_jobs: bool = False) -> VpaStores:
    stores = VpaStores(API, NoKinds())
    workloads = stores.workloads
    for each in (
        stores.vpas, stores.pods, stores.limit_ranges,
        *workloads.by_kind.values(), workloads.controllers,
    ):  # fmt: skip
        fill(each)
    if not but_to_cron_jobs:
        fill(workloads.cron_jobs)
    assert stores.is_current() is not but_to_cron_jobs
    return stores


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_a_silent_watch_of_controllers_stops_disruptions(kind: str) -> None:
    stores = listened()
    stores.workloads.by_kind[kind].apply(WatchBroken("silent"), scope="", now=time.monotonic())
    assert not stores.is_current()


def test_rights_that_are_taken_away_stop_them_as_well() -> None:
    stores = listened()
    error = Forbidden(403, "Forbidden", "no")
    stores.workloads.cron_jobs.apply(WatchBroken("no", error), scope="", now=time.monotonic())
    assert not stores.is_current()


def test_a_kind_that_may_not_be_listed_has_no_objects() -> None:
    stores = listened(but_to_cron_jobs=True)
    error = Forbidden(403, "Forbidden", "no")
    stores.workloads.cron_jobs.apply(WatchBroken("no", error), scope="", now=time.monotonic())
    assert stores.is_current()


BROKEN = b"""{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"resourcePolicy":
{"containerPolicies": [{"containerName": "app", "minAllowed": {"cpu": "much"}}]}}}"""


def test_a_broken_vpa_is_told_of_once_and_again_when_it_is_made_again() -> None:
    stores = VpaStores(API, NoKinds())
    broken = decode(BROKEN, StoredVpa)
    with capture_logs() as logs:
        for vpas in ([broken], [broken], [], [broken]):
            fill(stores.vpas, vpas)
    assert [entry["event"] for entry in logs] == ["VPA not read"] * 2
    fill(stores.vpas, [])
    assert stores._unreadable == {}


def test_limit_ranges_are_kept_of_namespaces_that_have_any() -> None:
    stores = VpaStores(API, NoKinds())
    for number in range(100):
        stores.ranges(f"ci-{number}")
    assert stores._ranges == {}


@pytest.mark.parametrize("field", ["policies", "recommenders"])
def test_a_vpa_of_thousands_of_entries_is_none_that_can_be_read(field: str) -> None:
    def written(count: int) -> StoredVpa:
        many = [{"containerName": f"c{n}", "name": f"c{n}"} for n in range(count)]
        spec = {"resourcePolicy": {"containerPolicies": many}, "recommenders": many}
        chosen = "resourcePolicy" if field == "policies" else field
        return decode(encode({"metadata": {}, "spec": {chosen: spec[chosen]}}), StoredVpa)

    assert vpa_of(written(1000)).metadata.name == ""
    with pytest.raises(ObjectError, match="length <= 1000"):
        vpa_of(written(1001))
