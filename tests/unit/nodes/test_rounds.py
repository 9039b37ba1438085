"""A round over all nodes: what is read, summed, decided and written."""

import asyncio
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from podscale.core.selectors.selector import parse
from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.columns.pods import PodStore
from podscale.kube.events import Recorder
from podscale.nodes.decide.ballast import Reason
from podscale.nodes.flags import NodesChoice
from podscale.nodes.rounds import NodeRounds
from podscale.nodes.selfmetrics import NodesMetrics
from podscale.process.leading_part import PeriodicLoop
from tests.unit.nodes.fleet import GI, Fleet

NOW = 1_795_000_000.0  # 2026-11-18
OLD, YOUNG = "2026-11-17T00:00:00Z", "2026-11-18T11:06:35Z"  # 5 s before NOW


class Rounds:
    """Rounds over a fleet, at a clock of their own."""

    def __init__(self, fleet: Fleet, **choice: Any) -> None:
        self.fleet, self.now, self.leads, self.outage = fleet, NOW, True, ""
        self.registry = CollectorRegistry()
        self.recorder = Recorder(fleet, "test", clock=lambda: self.now)
        self.rounds = NodeRounds(
            fleet, fleet, fleet.node_store, fleet.pod_store,
            NodesChoice(**{"mode": "ballast", **choice}), NodesMetrics(self.registry),
            self.recorder, is_leader=lambda: self.leads, outage=lambda: self.outage,
            wall=lambda: self.now,
        )  # fmt: skip

    async def told(self) -> list[str]:
        """Return the reasons of the events so far."""
        writing = asyncio.ensure_future(self.recorder.run())
        await self.recorder.flush(1.0)
        writing.cancel()
        return self.fleet.events

    async def at(self, seconds: float) -> dict[str, str]:
        """Run one round so long after the start; returns the reason for each node."""
        self.now = NOW + seconds
        self.fleet.taken_s = self.now
        self.fleet.feed()
        await self.rounds.once()
        decided = self.rounds.decided
        assert decided is not None
        return {name: Reason(int(reason)).token for name, reason in
                zip(decided.nodes.names, decided.plan.reason, strict=True)}  # fmt: skip


async def test_every_ballast_is_resized_to_what_its_node_needs(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    assert await rounds.at(0) == {"a": "Loaded", "b": "Loaded"}
    assert {fleet.held(name) for name in "ab"} == {"6"}  # 6 + 10 - 8 - 2
    assert await rounds.at(61) == {"a": "WithinStep", "b": "WithinStep"}
    assert len(fleet.patches) == 2
    written = rounds.registry.get_sample_value(
        "podscale_nodes_ballast_writes_total", {"result": "done"}
    )
    assert written == 2


async def test_a_round_that_outlasts_its_term_is_none_of_the_next(fleet: Fleet) -> None:
    rounds, reply = Rounds(fleet), fleet.reply

    async def replied(sent: Any) -> Any:
        rounds.leads = False
        rounds.rounds.end_term()
        return await reply(sent)

    fleet.reply = replied  # type: ignore[method-assign]
    await rounds.at(0)
    assert fleet.patches
    assert rounds.rounds.worked_s is None


@pytest.mark.parametrize(("mode", "leads"), [("shadow", True), ("ballast", False)])
async def test_who_may_not_write_decides_and_writes_nothing(
    fleet: Fleet, mode: str, leads: bool
) -> None:
    rounds = Rounds(fleet, mode=mode)
    rounds.leads = leads
    assert await rounds.at(0) == {"a": "Loaded", "b": "Loaded"}
    assert fleet.patches == []
    # What would be held is remembered where nothing can hold it.
    again = "WithinStep" if mode != "ballast" else "Loaded"
    assert await rounds.at(61) == {"a": again, "b": again}


async def test_requests_are_counted_as_the_scheduler_counts_them(fleet: Fleet) -> None:
    fleet.pod("done", "a", "3", started=OLD)["status"]["phase"] = "Succeeded"
    fleet.pod("waiting", "", "3")
    fleet.pod("elsewhere", "gone", "3")
    fleet.pod("bare", "a", started=OLD)  # no requests at all
    init = {"name": "init", "resources": {"requests": {"cpu": "4"}}}
    fleet.pod("init", "b", "1", started=OLD, initContainers=[init], overhead={"cpu": "250m"})
    growing = fleet.pod("growing", "b", "500m", started=OLD)
    growing["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True"}]
    growing["status"]["containerStatuses"] = [
        {"name": "app", "resources": {"requests": {"cpu": "750m"}}}
    ]
    rounds = Rounds(fleet)
    await rounds.at(0)
    decided = rounds.rounds.decided
    assert decided is not None
    assert decided.columns.requested[0].tolist() == [2000.0, 2000.0 + 4250.0 + 750.0]


async def test_extended_resources_are_left_alone(fleet: Fleet) -> None:
    fleet.nodes["a"]["status"]["allocatable"]["nvidia.com/gpu"] = "8"
    requests = fleet.pods["web-a"]["spec"]["containers"][0]["resources"]["requests"]
    requests["nvidia.com/gpu"] = "7"
    rounds = Rounds(fleet)
    await rounds.at(0)
    written = dict(fleet.patches)
    assert written["ballast-a"] == written["ballast-b"]
    assert written["ballast-a"].keys() == {"cpu", "memory"}


async def test_young_pods_count_with_what_they_do_not_use_yet(fleet: Fleet) -> None:
    fleet.pod("new", "a", "1", started=YOUNG)
    fleet.pod("newer", "a", "500m", started=YOUNG)
    fleet.pod_usage = [("shop", "new", 0.25, 0.0)]
    rounds = Rounds(fleet)
    await rounds.at(0)
    decided = rounds.rounds.decided
    assert decided is not None
    assert decided.columns.young[0].tolist() == [750.0 + 500.0, 0.0]


async def test_a_silent_feed_lets_go_after_two_windows_and_says_so_once(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.is_silent = True
    assert await rounds.at(599) == {"a": "WithinStep", "b": "WithinStep"}
    assert await rounds.at(601) == {"a": "StaleUsage", "b": "StaleUsage"}
    assert {fleet.held(name) for name in "ab"} == {"1m"}
    await rounds.at(620)
    assert await rounds.told() == ["StaleUsage"]
    failed = rounds.registry.get_sample_value(
        "podscale_nodes_usage_failures_total", {"reason": "Down"}
    )
    assert failed == 3
    fleet.is_silent = False
    assert await rounds.at(700) == {"a": "Loaded", "b": "Loaded"}


@pytest.mark.parametrize(
    ("outage", "cause"),
    [
        ("Prometheus did not answer in time (since 2026-11-18T11:06:40Z)", ""),
        ("", "nobody answers"),
    ],
)
async def test_the_event_of_a_silent_feed_names_the_cause(
    fleet: Fleet, outage: str, cause: str
) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.is_silent, rounds.outage = True, outage
    await rounds.at(601)
    await rounds.told()
    (message,) = fleet.event_messages
    assert message.endswith(f"by requests alone: {cause or outage}")


@pytest.mark.parametrize(("usage", "says"), [
    pytest.param({}, "2 nodes (a, b) | no CPU or memory of theirs | no node is measured",
                 id="nothing-answers"),
    pytest.param({"10.0.0.1:9100": (6.0, GI)}, "2 nodes (a, b) | by the name that the node has?",
                 id="other-names"),
    pytest.param({"a": (6.0, GI)}, "1 node (b) | other nodes are measured | /nodes/b`", id="some"),
    pytest.param({"a": (6.0, np.nan), "b": (6.0, GI)}, "1 node (a) | no memory of theirs",
                 id="no-memory"),
    pytest.param({"a": (6.0, GI), "b": (1e30, GI)}, "1 node (b) | no CPU of theirs", id="vast"),
    pytest.param({"a": (6.0, GI), "b": (-1.0, np.inf)}, "1 node (b) | no CPU or memory of theirs",
                 id="no-amounts"),
])  # fmt: skip
async def test_the_event_of_nodes_that_are_not_measured_names_them_and_what_is_the_matter(
    fleet: Fleet, usage: dict[str, tuple[float, float]], says: str
) -> None:
    fleet.usage = usage
    rounds = Rounds(fleet)
    await rounds.at(0)
    await rounds.at(600)
    assert await rounds.told() == []  # two windows have not passed yet
    await rounds.at(601)
    await rounds.told()
    (message,) = fleet.event_messages
    assert [part for part in says.split(" | ") if part not in message] == []


async def test_the_event_of_many_nodes_names_three_and_that_it_is_over_is_said(
    fleet: Fleet,
) -> None:
    for name in "cde":
        fleet.node(name)
        fleet.ballast(name)
    rounds = Rounds(fleet)
    fleet.usage = {}
    await rounds.at(0)
    with capture_logs() as logs:
        await rounds.at(601)
        assert "no usage of 5 nodes (a, b, c and 2 more)" in logs[0]["event"]
        fleet.usage = dict.fromkeys("abcde", (6.0, GI))
        await rounds.at(615)
        await rounds.at(630)
    assert [(each["event"], each["reason"]) for each in logs[1:]] == [("it is over", "StaleUsage")]


@pytest.mark.parametrize(("cores", "reason"), [(19.9, "Loaded"), (20.1, "StaleUsage")])
async def test_more_than_twice_the_capacity_is_no_measurement(
    fleet: Fleet, cores: float, reason: str
) -> None:
    fleet.usage["a"] = (cores, GI)
    assert (await Rounds(fleet).at(0))["a"] == reason


async def test_a_namespace_without_any_ballast_pod_is_named_once(fleet: Fleet) -> None:
    rounds = Rounds(fleet, namespace="nope")
    with capture_logs() as logs:
        await rounds.at(0)
        assert logs == []  # they may come in a moment
        await rounds.at(60)
        await rounds.at(75)
    (told,) = logs
    assert "none labelled app.kubernetes.io/component=ballast in namespace nope" in told["event"]
    assert await rounds.told() == []  # of a DaemonSet that is not there


@pytest.mark.parametrize("mode", ["shadow", "ballast", "taint"])
async def test_a_selector_that_selects_no_node_is_said_once(fleet: Fleet, mode: str) -> None:
    rounds = Rounds(fleet, mode=mode, selector=parse("pool=nope"))
    with capture_logs() as logs:
        await rounds.at(0)
        await rounds.at(15)
    (told,) = logs
    assert "all of 2 nodes are excluded by --node-selector=pool=nope" in told["event"]


async def test_a_label_that_looks_like_ours_is_warned_of_once_a_node(fleet: Fleet) -> None:
    fleet.nodes["a"]["metadata"]["labels"] = {"nodes.podscale.io/cputhreshold": "0.5"}
    rounds = Rounds(fleet)
    with capture_logs() as logs:
        await rounds.at(0)
        fleet.nodes["a"]["spec"] = {"unschedulable": True}
        await rounds.at(15)
    (told,) = logs
    assert (told["node"], told["label"]) == ("a", "nodes.podscale.io/cputhreshold")
    assert "ours are nodes.podscale.io/ballast, nodes.podscale.io/cpu-threshold" in told["event"]


async def test_nodes_whose_ballast_is_refused_are_left_alone_and_told_once(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    fleet.node("refused")  # by a quota, say: the DaemonSet could make no pod
    fleet.usage["refused"] = (9.0, GI)
    for second in (0, 15, 30):
        assert (await rounds.at(second))["refused"] == "NoBallast"
    assert await rounds.told() == ["NoBallast"]
    assert fleet.event_messages[0].startswith("no ballast pod is on 1 node (refused)")
    assert {fleet.held("a"), fleet.held("b")} == {"6"}


async def test_what_was_the_matter_before_we_led_has_its_event_too(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    rounds.leads = False
    fleet.node("refused")
    await rounds.at(0)
    assert await rounds.told() == []
    rounds.leads = True
    with capture_logs() as logs:
        for second in (15, 30):
            await rounds.at(second)
            assert await rounds.told() == ["NoBallast"]
    assert logs == []


async def test_of_a_node_that_has_just_come_nothing_is_told(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    fleet.node("new", creationTimestamp="2026-11-18T11:05:00Z")  # 100 s before
    assert (await rounds.at(0))["new"] == "NoBallast"
    fleet.ballast("new")
    assert (await rounds.at(15))["new"] == "StaleUsage"
    assert await rounds.told() == []
    await rounds.at(501)  # two windows old, but we have not run for so long
    assert await rounds.told() == []
    await rounds.at(601)
    assert await rounds.told() == ["StaleUsage"]


async def test_an_api_server_that_cannot_resize_is_no_pod_that_is_gone(fleet: Fleet) -> None:
    def nosuch(*_: Any) -> Any:
        raise ObjectNotFound(404, "", "PATCH …/resize: the server has no such resource")

    fleet._resize = nosuch  # type: ignore[method-assign]
    rounds = Rounds(fleet)
    await rounds.at(0)
    name = "podscale_nodes_ballast_writes_total"
    assert rounds.registry.get_sample_value(name, {"result": "failed"}) == 2


async def test_metrics_of_half_of_the_nodes_decide_over_those(fleet: Fleet) -> None:
    del fleet.usage["b"]
    fleet.usage["gone"] = (99.0, 99.0)
    rounds = Rounds(fleet)
    assert await rounds.at(0) == {"a": "Loaded", "b": "StaleUsage"}
    assert (fleet.held("a"), fleet.held("b")) == ("6", "1m")


async def test_a_pod_of_lower_priority_opens_its_node_and_no_other(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.pod("batch", "b", "1", started=OLD, priority=-5)
    assert await rounds.at(1) == {"a": "WithinStep", "b": "LowerPriority"}
    assert [fleet.held(name) for name in "ab"] == ["6", "1m"]
    assert await rounds.told() == ["LowerPriority"]
    assert "run on 1 node (b): " in fleet.event_messages[0]
    # It has ended: a minute after the last write the node is held again.
    del fleet.pods["batch"]
    assert await rounds.at(62) == {"a": "WithinStep", "b": "Loaded"}


async def test_a_lesser_pod_whose_preemption_makes_no_room_opens_no_node(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.pod("batch", "b", started=OLD, priority=-5)
    assert await rounds.at(1) == {"a": "WithinStep", "b": "WithinStep"}
    assert [fleet.held(name) for name in "ab"] == ["6", "6"]
    assert await rounds.told() == []


async def test_headroom_counts_neither_as_requested_nor_as_a_lesser_pod(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    before = fleet.held("a")
    labels = {"app.kubernetes.io/component": "headroom"}
    fleet.pod("room", "a", "1", started=OLD, priority=-10, labels=labels,
              namespace="podscale-headroom")  # fmt: skip
    assert (await rounds.at(61))["a"] == "WithinStep"
    assert fleet.held("a") == before


async def test_ballast_that_is_deleted_again_and_again_is_written_once_a_minute(
    fleet: Fleet,
) -> None:
    rounds = Rounds(fleet)
    for second in range(0, 120, 15):
        fleet.pods["ballast-a"]["metadata"]["uid"] = f"uid-{second}"
        fleet.pods["ballast-a"]["spec"]["containers"][0]["resources"]["requests"] = {
            "cpu": "1m", "memory": "1Mi"
        }  # fmt: skip
        await rounds.at(second)
    assert [name for name, _ in fleet.patches].count("ballast-a") == 2


async def test_selected_and_excluded_nodes_and_their_own_thresholds(fleet: Fleet) -> None:
    fleet.nodes["a"]["metadata"]["labels"] = {
        "pool": "web", "nodes.podscale.io/cpu-threshold": "0.7",
        "nodes.podscale.io/memory-threshold": "lots",
    }  # fmt: skip
    fleet.node("c", labels={"pool": "web", "nodes.podscale.io/ballast": "off"})
    fleet.ballast("c", "3")
    rounds = Rounds(fleet, selector=parse("pool=web"))
    assert await rounds.at(0) == {"a": "Loaded", "b": "Excluded", "c": "Excluded"}
    assert (fleet.held("a"), fleet.held("b"), fleet.held("c")) == ("7", "1m", "1m")


@pytest.mark.parametrize(("change", "reason"), [
    ({"spec": {"unschedulable": True}}, "Cordoned"),
    ({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
     "Draining"),
    ({"conditions": [{"type": "DiskPressure", "status": "True"}]}, "Pressure"),
    ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, "Pressure"),
    ({"conditions": [{"type": "Ready", "status": "True"}]}, "WithinStep"),
    ({"allocatable": {"cpu": "lots", "memory": "1Gi"}}, "Unreadable"),
    ({"allocatable": {"cpu": "6", "memory": "31Gi"}}, "TooSoon"),
])  # fmt: skip
async def test_what_happens_to_a_node(fleet: Fleet, change: dict[str, Any], reason: str) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    spec = change.pop("spec", {})
    fleet.nodes["a"]["spec"] = spec
    fleet.nodes["a"]["status"] |= change
    assert (await rounds.at(5))["a"] == reason
    let_go = reason in ("Cordoned", "Draining", "Pressure")
    assert (fleet.held("a") == "1m") == let_go


async def test_nothing_is_decided_on_watches_that_are_behind(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    fleet.feed()
    rounds.rounds.pods = PodStore()  # never listed
    await rounds.rounds.once()
    assert rounds.rounds.decided is None


async def test_a_refused_resize_is_counted_and_tried_a_minute_later(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    fleet.feed()
    fleet.is_down = True
    await rounds.at(0)
    failed = {"result": "failed"}
    name = "podscale_nodes_ballast_writes_total"
    assert rounds.registry.get_sample_value(name, failed) == 2
    fleet.is_down = False
    await rounds.at(30)
    assert fleet.patches == []
    await rounds.at(61)
    assert len(fleet.patches) == 2


async def test_a_leader_that_cannot_let_go_does_no_work(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    assert rounds.rounds.worked_s == NOW
    fleet.is_down = True
    fleet.usage["a"] = (9.0, GI)
    await rounds.at(61)  # keeps out too little: nobody waits for what is let go
    assert rounds.rounds.worked_s == NOW + 61
    fleet.usage |= {"a": (5.0, GI), "b": (5.0, GI)}
    for second in (600, 615, 1000):  # not even where there is nothing to write
        await rounds.at(second)
        assert rounds.rounds.worked_s == NOW + 61
    fleet.is_down = False
    await rounds.at(1100)
    assert rounds.rounds.worked_s == NOW + 1100


async def test_a_term_begins_with_rounds_of_its_own(fleet: Fleet) -> None:
    """Between two of ours another leader wrote on the Lease what would look old again."""
    rounds = Rounds(fleet)
    await rounds.at(0)
    rounds.rounds.end_term()
    assert rounds.rounds.worked_s is None
    await rounds.at(61)
    assert rounds.rounds.worked_s == NOW + 61


@pytest.mark.parametrize(("mode", "leads"), [("shadow", True), ("extender", True),
                                             ("ballast", False)])  # fmt: skip
async def test_who_looks_after_no_ballast_does_not_say_so(
    fleet: Fleet, mode: str, leads: bool
) -> None:
    rounds = Rounds(fleet, mode=mode)
    rounds.leads = leads
    await rounds.at(0)
    assert rounds.rounds.worked_s is None


async def test_a_slow_api_server_is_written_to_for_one_interval_and_what_is_let_go_first() -> None:
    fleet = Fleet()
    for number in range(12):
        fleet.node(f"n{number:02}")
        fleet.ballast(f"n{number:02}")
        fleet.usage[f"n{number:02}"] = (6.0, GI)
    fleet.nodes["n11"]["spec"] = {"unschedulable": True}
    fleet.ballast("n11", "3")
    rounds, resize = Rounds(fleet), fleet._resize

    def slowly(*given: Any) -> Any:
        rounds.now += 4.0
        return resize(*given)

    fleet._resize = slowly  # type: ignore[method-assign]
    await rounds.at(0)
    written = [name for name, _ in fleet.patches]
    assert written == ["ballast-n11", "ballast-n00", "ballast-n01", "ballast-n02"]
    await rounds.at(30)
    assert [name for name, _ in fleet.patches][4:] == [f"ballast-n0{n}" for n in range(3, 7)]


async def test_an_empty_cluster_is_no_error() -> None:
    assert await Rounds(Fleet()).at(0) == {}


@pytest.mark.looptime
async def test_rounds_that_fail_are_counted_and_tried_again(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    fleet.feed()
    fleet.taken_s = NOW
    fleet.is_broken = True

    def counted(result: str) -> float | None:
        name = "podscale_nodes_rounds_total"
        return rounds.registry.get_sample_value(name, {"result": result})

    loop = PeriodicLoop("nodes-rounds", rounds.rounds.once, 15.0, longest_s=55.0)
    running = asyncio.ensure_future(loop.run())
    await asyncio.sleep(31)
    assert (counted("failed"), counted("decided")) == (3, None)
    assert rounds.rounds.worked_s is None
    # It comes round: a restart, which is what liveness asks for, would mend nothing.
    assert loop.heartbeat.is_expected
    assert loop.heartbeat().is_ok
    fleet.is_broken = False
    await asyncio.sleep(15)
    assert (counted("failed"), counted("decided")) == (3, 1)
    assert rounds.rounds.decided is not None
    assert rounds.rounds.worked_s == NOW
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not loop.heartbeat.is_expected
