"""What must be current before a pod is disturbed."""

import time
from typing import Any

import pytest

from podscale.kube.client.errors import Forbidden
from podscale.kube.client.resource import Resource
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
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
