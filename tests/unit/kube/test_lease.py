"""Elections in virtual time, against a little API server that can be cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from podscale.kube.client.errors import ServerFailed
from podscale.kube.leadership.lease import Elector, LeaseTimes, Term
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal
from tests.unit.kube.replicas import PATH, Replica, spec

pytestmark = pytest.mark.looptime


async def test_a_lease_in_no_namespace_is_told_once_with_the_flag_until_the_namespace_is_there():
    cluster = LittleCluster()
    has_namespace = False

    def fault(method: str, _path: str, _query: object) -> Refusal | None:
        is_refused = method == "POST" and not has_namespace
        return Refusal(404, "NotFound", 'namespaces "podscale" not found') if is_refused else None

    cluster.fault = fault
    with capture_logs() as logs:
        one = Replica(cluster, "one")
        await asyncio.sleep(120)
        assert [(each["log_level"], each["lease"], each["flag"]) for each in logs] == [
            ("warning", "podscale/hpa", "--leader-elect-resource-namespace")
        ]
        has_namespace = True
        await asyncio.sleep(3)
        assert one.elector.may_write()
    await one.stop()


async def test_a_namespace_that_goes_again_is_told_again_by_who_only_waited():
    cluster = LittleCluster()
    refusal = Refusal(404, "NotFound", 'namespaces "podscale" not found')
    cluster.fault = lambda method, *_: refusal if method == "POST" else None
    with capture_logs() as logs:
        waiting = Replica(cluster, "waiting")
        await asyncio.sleep(19)
        posts = [method for method, *_ in cluster.requests].count("POST")
        assert 10 <= posts <= 12  # one each retry period
        cluster.fault = lambda *_: None
        cluster.put(PATH, {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}})
        await asyncio.sleep(5)
        assert not waiting.elector.may_write()
        cluster.fault = lambda method, *_: refusal if method == "POST" else None
        cluster.delete(PATH)
        await asyncio.sleep(20)
        assert [each["event"].partition(":")[0] for each in logs] == [
            "nobody can lead", "standing by", "nobody can lead",
        ]  # fmt: skip
    await waiting.stop()


async def test_one_leads_and_the_other_waits():
    cluster = LittleCluster()
    one, other = Replica(cluster, "one"), Replica(cluster, "other")
    with capture_logs() as logs:
        await asyncio.sleep(120)
    leaders = [replica for replica in (one, other) if replica.elector.may_write()]
    assert len(leaders) == 1
    assert len(one.terms) + len(other.terms) == 1
    (standing_by,) = (each for each in logs if each["event"] == "standing by")
    assert standing_by["leader"] == spec(cluster)["holderIdentity"]
    await one.stop()
    await other.stop()


async def test_the_lease_is_written_as_go_reads_it():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    written = spec(cluster)
    assert written["holderIdentity"] == "one"
    assert written["leaseDurationSeconds"] == 15
    assert written["leaseTransitions"] == 0
    for time_ in (written["acquireTime"], written["renewTime"]):
        seconds, fraction = str(time_).removesuffix("Z").split(".")
        assert len(fraction) == 6
        assert len(seconds) == 19
    await one.stop()


async def test_a_leader_that_stops_hands_over_within_a_retry():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(1)
    other = Replica(cluster, "other")
    await asyncio.sleep(10)
    await one.stop()
    assert one.ended == 1
    assert spec(cluster)["holderIdentity"] == ""
    await asyncio.sleep(2.5)
    assert other.elector.may_write()
    assert spec(cluster)["leaseTransitions"] == 1
    await other.stop()


async def test_a_leader_that_dies_is_followed_after_the_lease_duration_and_a_retry():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(1)
    other = Replica(cluster, "other")
    await asyncio.sleep(10)
    one.api.is_cut_off = True  # as a kill: no release, no renewal
    died = asyncio.get_running_loop().time()
    while not other.elector.may_write():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.1)
    waited = asyncio.get_running_loop().time() - died
    assert 12 < waited <= 15 + 2 + 0.2
    assert other.terms[0].previous_renew_time is not None
    await one.stop()
    await other.stop()


@pytest.mark.parametrize("set_s", [-7200.0, -40.0, -1.0, 0.0, 1.0, 40.0, 7200.0])
@pytest.mark.parametrize("when", ["always", "after"])
async def test_a_term_tells_by_how_much_the_clock_of_the_leader_before_was_behind(
    when: str, set_s: float
):
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(1)
    other = Replica(cluster, "other")
    other.set_s = set_s if when == "always" else 0.0
    await asyncio.sleep(10)
    one.api.is_cut_off = True
    await asyncio.sleep(5)
    other.set_s = set_s
    await asyncio.sleep(15)
    (term,) = other.terms
    if abs(set_s) < 2:
        assert term.previous_behind_s == 0.0
    else:
        # What a renewal waits to be seen counts as well.
        assert set_s <= term.previous_behind_s <= set_s + 2.0
    await one.stop()
    await other.stop()


@pytest.mark.parametrize("set_s", [-7200.0, 0.0, 7200.0])
async def test_a_lease_seen_for_the_first_time_tells_only_of_a_clock_that_was_ahead(set_s: float):
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(10)
    one.api.is_cut_off = True
    await asyncio.sleep(600)
    other = Replica(cluster, "other")
    other.set_s = set_s
    await asyncio.sleep(20)
    (term,) = other.terms
    if set_s < 0:
        assert set_s < term.previous_behind_s < set_s + 620
    else:
        assert term.previous_behind_s == 0.0  # nobody may have led for so long
    await one.stop()
    await other.stop()


async def test_a_process_that_follows_itself_is_told_as_others_are_how_its_clock_was_set():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    one.api.is_cut_off = True
    await asyncio.sleep(12)
    one.set_s = -40.0
    one.api.is_cut_off = False
    await asyncio.sleep(3)
    assert [each.previous_behind_s for each in one.terms] == [0.0, pytest.approx(-40.0, abs=2.0)]
    await one.stop()
    # Another process of this name, as after a restart of the container.
    again = Replica(cluster, "one")
    await asyncio.sleep(3)
    assert again.terms[0].previous_behind_s == 0.0
    await again.stop()


async def test_a_cut_off_leader_stops_before_another_may_start():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(1)
    other = Replica(cluster, "other")
    await asyncio.sleep(10)
    one.api.is_cut_off = True
    for _ in range(400):
        await asyncio.sleep(0.1)
        assert not (one.elector.may_write() and other.elector.may_write())
    assert one.ended == 1
    assert other.elector.may_write()
    await one.stop()
    await other.stop()


async def test_an_unanswered_renewal_that_arrived_is_not_a_loss():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)

    def swallow(method: str, path: str, query: object) -> Refusal | None:
        if method != "PUT":
            return None
        cluster.fault = lambda *_: None
        cluster.put(PATH, cluster.objects[PATH])
        return Refusal(504, "Timeout", "the answer is lost, the write is not")

    cluster.fault = swallow
    await asyncio.sleep(20)
    assert one.elector.may_write()
    assert len(one.terms) == 1
    await one.stop()


async def test_a_lease_taken_by_somebody_else_ends_the_term_at_the_next_renewal():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    taken = {**cluster.objects[PATH], "spec": {**spec(cluster), "holderIdentity": "thief"}}
    cluster.put(PATH, taken)
    await asyncio.sleep(3)
    assert not one.elector.may_write()
    assert one.ended == 1
    assert one.elector.holder == "thief"
    await one.stop()
    assert spec(cluster)["holderIdentity"] == "thief"


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_lease_that_others_held_and_released_begins_a_new_term(is_deleted: bool):
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    if is_deleted:
        cluster.delete(PATH)
    else:
        left = {**spec(cluster), "holderIdentity": "", "leaseTransitions": 7}
        cluster.put(PATH, {**cluster.objects[PATH], "spec": left})
    await asyncio.sleep(6)
    assert one.ended == 1
    assert len(one.terms) == 2
    assert spec(cluster)["leaseTransitions"] == (0 if is_deleted else 8)
    assert one.elector.may_write()
    await one.stop()


async def test_work_that_fails_releases_the_lease_and_is_raised():
    cluster = LittleCluster()
    elector = Elector(MemoryApi(cluster), namespace="podscale", name="hpa", identity="one")

    async def work(term: Term) -> None:
        await asyncio.sleep(3)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await elector.run(work)
    assert spec(cluster)["holderIdentity"] == ""


async def test_labels_of_the_lease_survive_renewals():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(3)
    lease = cluster.objects[PATH]
    cluster.put(PATH, {**lease, "metadata": {**lease["metadata"], "labels": {"kept": "yes"}}})  # type: ignore[dict-item]
    await asyncio.sleep(10)
    assert one.elector.may_write()
    assert cluster.objects[PATH]["metadata"]["labels"] == {"kept": "yes"}  # type: ignore[index]
    await one.stop()


async def test_the_holder_writes_its_annotations_beside_those_of_others():
    cluster = LittleCluster()
    replica, told = Replica(cluster, "one"), {"round": "1"}
    replica.elector._annotations = lambda: dict(told)

    def annotations() -> object:
        return cluster.objects[PATH]["metadata"]["annotations"]  # type: ignore[index]

    await asyncio.sleep(3)
    assert annotations() == {"round": "1"}
    lease = cluster.objects[PATH]
    cluster.put(PATH, {**lease, "metadata": {**lease["metadata"], "annotations": {"kept": "yes"}}})  # type: ignore[dict-item]
    told["round"] = "2"
    await asyncio.sleep(5)
    assert annotations() == {"kept": "yes", "round": "2"}
    await replica.stop()


class Label:
    """An ``on_change`` that fails as it is told to, and knows when it was tried."""

    def __init__(self) -> None:
        self.fail: Callable[[], Awaitable[None]] | None = None
        self.tried: list[tuple[float, bool]] = []
        self.shown = False

    async def __call__(self, is_leader: bool) -> None:
        self.tried.append((asyncio.get_running_loop().time(), is_leader))
        if self.fail is not None:
            await self.fail()
        self.shown = is_leader


async def _refused() -> None:
    raise ServerFailed(503, "ServiceUnavailable", "overloaded")


async def _hanging() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("failure", [_refused, _hanging])
async def test_a_label_that_is_refused_is_written_later_in_the_same_term(
    failure: Callable[[], Awaitable[None]],
):
    cluster, label = LittleCluster(), Label()
    label.fail = failure
    with capture_logs() as logs:
        one = Replica(cluster, "one", label)
        await asyncio.sleep(300)
        renewals = [method for method, *_ in cluster.requests].count("PUT")
        assert renewals >= 300 / 2 - 1, "one each retry period, as with a label"
        lasts_s = 5.0 if failure is _hanging else 0.0
        times = [at for at, _ in label.tried]
        pauses = [round(b - a - lasts_s) for a, b in pairwise(times)]
        assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
        label.fail = None
        await asyncio.sleep(36)
        assert label.shown
        told = len(label.tried)
        await asyncio.sleep(300)
        assert len(label.tried) == told
    assert len(one.terms) == 1
    events = [(each["log_level"], each["event"]) for each in logs if "label" in each["event"]]
    assert events == [
        ("warning", "leader label not written, trying on"),
        ("info", "leader label written"),
    ]
    await one.stop()
    assert not label.shown


async def test_a_label_is_not_tried_for_any_more_once_the_lease_is_lost():
    cluster, label = LittleCluster(), Label()
    label.fail = _refused
    one = Replica(cluster, "one", label)
    await asyncio.sleep(20)
    taken = {**cluster.objects[PATH], "spec": {**spec(cluster), "holderIdentity": "thief"}}
    cluster.put(PATH, taken)
    await asyncio.sleep(3)
    assert [is_leader for _, is_leader in label.tried][-1] is False
    label.fail = None
    await asyncio.sleep(10)
    assert not label.shown
    await one.stop()


def test_times_that_cannot_be_safe_are_refused():
    with pytest.raises(ValueError, match="duration > renew deadline"):
        LeaseTimes(duration_s=10, renew_deadline_s=10, retry_s=2)
