"""One bad object, provider or moment harms only itself (invariant 5), and nothing spins."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from hpa.cluster.record import AutoscalerRecord, AutoscalerView, TargetScale
from hpa.decide.observation import Scale
from hpa.decide.settings import Settings
from hpa.loop import controller as controllers
from hpa.loop.reconciler import _READS, Reconciler
from hpa.loop.state import Options
from podscale.core.metrics import Answer, Question, Unavailable
from podscale.kube.client.errors import ApiUnreachable, ServerFailed, WriteConflict
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.world import NS, Cluster, KnownKinds, deployment_object, hpa_object, pod_object

pytestmark = pytest.mark.looptime

SETTINGS = Settings(sync_period_s=15.0)


class CursedMapper(Mapper):
    """Breaks where one kind is asked about, as a bug would."""

    def for_kind(self, kind: str, group: str = "", version: str = "") -> tuple[Resource, ...]:
        if kind == "Cursed":
            raise RuntimeError("a bug")
        return super().for_kind(kind, group, version)


class CursedKinds(KnownKinds):
    def __init__(self) -> None:
        super().__init__()
        self.mapper = CursedMapper(())


def about(name: str) -> dict[str, Any]:
    """Return a metric that cannot even be asked for."""
    described = {"kind": "Cursed", "name": name, "apiVersion": "x.io/v1"}
    target = {"type": "Value", "value": "1"}
    return {
        "type": "Object",
        "object": {"metric": {"name": "m"}, "describedObject": described, "target": target},
    }


@pytest.mark.parametrize("where", ["at hand", "look", "fetch"])
async def test_a_bug_met_by_one_object_stops_no_other(where: str) -> None:
    cluster = Cluster(settings=SETTINGS, kinds=CursedKinds())
    cursed = hpa_object("a-bad", *([about("x")] if where == "look" else []))
    if where == "fetch":
        cursed["spec"]["scaleTargetRef"] = {"apiVersion": "x.io/v1", "kind": "Cursed", "name": "x"}
    cluster.put(cursed, hpa_object("web"), deployment_object("web", 2))
    cluster.put(deployment_object("a-bad", 2))
    cluster.put_pods(*(pod_object(n, row) for n in ("web", "a-bad") for row in range(2)))
    cluster.provider.usage = lambda _question, _pod: 2000
    if where == "at hand":
        found = cluster.controller.state.targets.at_hand

        def at_hand(entry: AutoscalerRecord) -> TargetScale | None:
            if entry.key[1] == "a-bad":
                raise RuntimeError("a bug")
            return found(entry)

        cluster.controller.state.targets.at_hand = at_hand  # type: ignore[method-assign]
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(31.0)
    assert not leading.done()
    assert cluster.scales()[0] == ("web", 4)
    entry = cluster.controller.catalog.get((NS, "a-bad"))
    assert entry is not None
    assert not entry.passes.is_under_way  # it gets its next pass like all the others
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_namespace_whose_writes_hang_leaves_turns_for_the_others() -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=8))
    for number in range(20):
        name = f"a{number:02}"
        cluster.put(hpa_object(name, namespace="hung"), deployment_object(name, 2, "hung"))
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    pods = [pod_object(f"a{number:02}", row, "hung") for number in range(20) for row in range(2)]
    cluster.put_pods(*pods, pod_object("web", 0), pod_object("web", 1))
    cluster.provider.usage = lambda _question, _pod: 2000
    cluster.world.delay = lambda _method, path: 9.0 if "/hung/" in path else 0.0
    await cluster.run_for(1.0)
    assert cluster.scales() == [("web", 4)]


async def test_scales_are_not_asked_for_all_at_once() -> None:
    cluster = Cluster(settings=SETTINGS)
    for number in range(_READS + 10):
        made = hpa_object(f"t{number:02}")
        made["spec"]["scaleTargetRef"] |= {"apiVersion": "x.io/v1", "kind": "Thing"}
        cluster.put(made)
    cluster.put_pods()
    under_way = 0
    counts: list[int] = []

    async def fetch(_entry: AutoscalerRecord) -> TargetScale:
        nonlocal under_way
        under_way += 1
        counts.append(under_way)
        await asyncio.sleep(0.2)
        under_way -= 1
        return TargetScale(Scale(2, 2))

    cluster.controller.state.targets.fetch = fetch  # type: ignore[method-assign,assignment]
    await cluster.run_for(3.0)
    assert len(counts) == _READS + 10
    assert max(counts) == _READS


ONE_A_MINUTE = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(
    ("failure", "then"),
    [
        (ApiUnreachable("reset"), None),
        (ApiUnreachable("late", is_timeout=True), None),
        (ServerFailed(504, "Timeout", "t"), None),
        # A kept connection broke and the PUT was sent again: it met what the first one had done,
        (WriteConflict(409, "Conflict", "the object has been modified"), None),
        # and the API server went away before it could be asked.
        (WriteConflict(409, "Conflict", "the object has been modified"), ApiUnreachable("refused")),
    ],
)
async def test_a_rescale_whose_answer_is_lost_counts_once_it_is_seen(
    failure: Exception, then: Exception | None, is_stored: bool
) -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web", behavior=ONE_A_MINUTE), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    cluster.provider.usage = lambda _question, _pod: 9000

    def lose(method: str, path: str) -> Exception | None:
        if method == "GET" or not path.endswith("/scale"):
            return None
        asleep = cluster.wall() + 1.0  # the next request, and not the next pass
        cluster.world.fail = lambda _method, _path: then if cluster.wall() < asleep else None
        if is_stored:
            found = cluster.world.workloads[NS, "web"]
            found["spec"]["replicas"] = 3
            found["metadata"]["resourceVersion"] = cluster.world.next_version()
        return failure

    cluster.world.fail = lose
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    for _ in range(58):
        await asyncio.sleep(1.0)
        cluster.sync()
    assert cluster.world.workloads[NS, "web"]["spec"]["replicas"] == 3
    for _ in range(20):
        await asyncio.sleep(1.0)
        cluster.sync()
    # It counted once: the next one is not held back longer than the policy says.
    assert cluster.world.workloads[NS, "web"]["spec"]["replicas"] == 4
    leading.cancel()
    await asyncio.wait({leading})


class Short:
    """A provider that loses an answer."""

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        return [Unavailable("No", "no") for _ in questions][1:]


async def test_answers_that_do_not_fit_the_questions_fail_every_metric_of_the_batch() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    cluster.controller.state.ports.provider = Short()
    await cluster.run_for(31.0)
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert trace.observation.answers == (
        Unavailable("WrongAnswer", "0 answers to 1 questions"),
    )  # fmt: skip
    assert cluster.scales() == []


async def test_a_slot_that_fails_leaves_a_pass_alone_that_is_still_under_way() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put(hpa_object("other"), deployment_object("other", 2))
    cluster.put_pods(*(pod_object(n, row) for n in ("web", "other") for row in range(2)))
    cluster.provider.usage = lambda _question, pod: 2000 if pod.startswith("web") else 1000
    cluster.world.delay = lambda _method, path: 50.0 if path.endswith("web/scale") else 0.0
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(5.0)
    record, reconciler = (
        cluster.controller.catalog.get((NS, "web")),
        cluster.controller._changes.reconciler,
    )
    assert record is not None
    assert record.passes.is_under_way
    assert reconciler is not None
    about, slots = reconciler._metrics.about, list[int]()

    async def fails_once(views: Sequence[AutoscalerView]) -> Any:
        slots.append(len(views))
        if len(slots) == 1:
            raise RuntimeError("a bug")
        return await about(views)

    reconciler._metrics.about = fails_once  # type: ignore[method-assign]
    with capture_logs() as logs:
        await asyncio.sleep(40.0)
    assert [each["event"] for each in logs] == ["slot failed"]
    assert slots == [1] * len(slots), "the other one is asked about, slot after slot"
    assert len(slots) >= 2
    assert record.passes.is_under_way
    await asyncio.sleep(10.0)
    assert [name for name, _ in cluster.scales()] == ["web"]
    leading.cancel()
    await asyncio.wait({leading})


class Counting(Reconciler):
    """Counts how often somebody is looked for who is urgent."""

    looked = 0

    async def urgent(self) -> list[AutoscalerRecord]:
        self.looked += 1
        return await super().urgent()


async def test_a_change_during_a_long_pass_is_waited_for_without_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(settings=SETTINGS)
    controller = cluster.controller
    monkeypatch.setattr(controllers, "Reconciler", Counting)
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    cluster.provider.delay_s = 20.0
    leading = asyncio.ensure_future(controller.run(Term(None)))
    await asyncio.sleep(1.0)
    changed = cluster.world.hpas[(NS, "web")]
    changed["spec"] = {**changed["spec"], "minReplicas": 5}
    changed["metadata"] = {
        **changed["metadata"], "resourceVersion": cluster.world.next_version(), "generation": 2,
    }  # fmt: skip
    cluster.sync()
    await asyncio.sleep(18.5)
    assert cluster.scales() == []
    await asyncio.sleep(1.0)
    assert cluster.scales() == [("web", 5)]  # at once when the pass has ended
    assert controller._changes.reconciler.looked < 40  # type: ignore[union-attr]
    leading.cancel()
    await asyncio.wait({leading})
