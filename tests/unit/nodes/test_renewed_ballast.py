"""Rounds over nodes whose ballast is made anew, and over two ballast pods of one node."""

from typing import Any

import pytest

from podscale.core.metrics import ContainerUsage
from tests.unit.nodes.fleet import BALLAST, GI, Fleet
from tests.unit.nodes.test_rounds import OLD, YOUNG, Rounds

YOUNGEST = "2026-11-25T00:00:00Z"  # than what the fleet starts


async def test_ballast_older_than_pods_of_its_class_is_made_anew_by_its_daemonset(
    fleet: Fleet,
) -> None:
    rounds = Rounds(fleet)
    fleet.pods["ballast-a"]["status"]["startTime"] = "2026-11-16T00:00:00Z"
    fleet.pods["ballast-b"]["status"]["startTime"] = YOUNG
    await rounds.at(0)  # 6 of 8 cores held, the second of two
    assert fleet.renewed == ["ballast-a"]
    await rounds.at(120)
    assert fleet.renewed == ["ballast-a"]  # once
    renewals = rounds.registry.get_sample_value(
        "podscale_nodes_ballast_renewals_total", {"result": "done"}
    )
    assert renewals == 1


async def test_a_full_node_spares_what_a_second_ballast_pod_needs_to_start(fleet: Fleet) -> None:
    fleet.pods["ballast-a"]["status"]["startTime"] = "2026-11-16T00:00:00Z"
    fleet.usage["a"] = (9.5, GI)  # everything that is not requested is held
    rounds = Rounds(fleet)
    await rounds.at(0)
    assert fleet.renewed == ["ballast-a"]
    await rounds.at(1)
    assert fleet.held("a") == "7999m"
    assert await rounds.at(61) == {"a": "WithinStep", "b": "WithinStep"}
    assert fleet.held("a") == "7999m"
    # Also where the pods of users grow before it has started, by less than is worth a write.
    fleet.pod("daemon", "a", "100m", started=OLD)
    await rounds.at(62)
    assert fleet.held("a") == "7899m"
    await rounds.at(63)
    assert len(fleet.patches) == 4


async def test_a_younger_ballast_pod_takes_over_at_once_and_the_older_is_deleted_after_it(
    fleet: Fleet,
) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.patches.clear()
    younger = fleet.pod("ballast-a2", "a", "1m", labels=BALLAST, container="pause",
                        namespace="podscale-ballast")  # fmt: skip
    del younger["status"]["startTime"]
    await rounds.at(1)
    assert fleet.patches == []  # no kubelet has taken it yet, and could refuse it
    younger["status"]["startTime"] = YOUNGEST
    await rounds.at(2)
    requests = {"cpu": "5999m", "memory": str(2**20)}
    assert fleet.patches == [("ballast-a2", requests), ("ballast-a", None)]
    await rounds.at(3)
    assert len(fleet.patches) == 2


async def test_what_the_older_holds_is_held_on_also_where_it_would_not_be_taken_up(
    fleet: Fleet,
) -> None:
    # Held from 52 % of the threshold of 8 cores on, and let go below 50 %.
    fleet.usage["a"] = (5.0, GI)
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.usage["a"] = (4.1, GI)
    await rounds.at(400)
    fleet.pod("ballast-a2", "a", "1m", labels=BALLAST, container="pause",
              namespace="podscale-ballast", started=YOUNGEST)  # fmt: skip
    assert (await rounds.at(415))["a"] == "WithinStep"
    requests = {"cpu": "4099m", "memory": str(2**20)}
    assert fleet.patches[-2:] == [("ballast-a2", requests), ("ballast-a", None)]
    # Nor does it look as if less was held for a moment.
    total = rounds.registry.get_sample_value("podscale_nodes_ballast_requests", {"resource": "cpu"})
    assert total == 4.1 + 6


async def test_two_ballast_pods_never_request_more_than_their_node_has(fleet: Fleet) -> None:
    fleet.usage["a"] = (9.5, GI)  # everything that is not requested is held
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.pod("ballast-a2", "a", "1m", labels=BALLAST, container="pause",
              namespace="podscale-ballast", started=YOUNGEST)  # fmt: skip
    await rounds.at(2)
    assert fleet.patches[-2:] == [
        ("ballast-a2", {"cpu": "7999m", "memory": str(2**20)}),
        ("ballast-a", None),
    ]


async def test_while_a_younger_ballast_pod_cannot_be_written_the_older_holds(fleet: Fleet) -> None:
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.pod("ballast-a2", "a", "1m", labels=BALLAST, container="pause",
              namespace="podscale-ballast", started=YOUNGEST)  # fmt: skip
    fleet.refused.add("ballast-a2")
    await rounds.at(2)
    assert fleet.held("a") == "6"
    fleet.refused.clear()
    await rounds.at(3)
    assert "ballast-a" not in fleet.pods


async def test_a_users_pod_in_the_row_of_ballast_that_has_gone_is_left_alone(fleet: Fleet) -> None:
    fleet.pods["ballast-a"]["status"]["startTime"] = "2026-11-16T00:00:00Z"  # and so to be renewed
    fleet.pod("new", "b", "10m", started=YOUNG)
    rounds, answer = Rounds(fleet), fleet.answer

    async def answered(questions: Any) -> Any:
        if isinstance(questions[0], ContainerUsage):  # about young pods, after pods were summed
            del fleet.pods["ballast-a"]
            fleet.feed()
            fleet.pod("user", "a", "1", labels=BALLAST, container="pause")
            fleet.feed()
        return await answer(questions)

    fleet.answer = answered  # type: ignore[method-assign]
    await rounds.at(0)
    assert [name for name, _ in fleet.patches] == ["ballast-b"]
    assert fleet.renewed == []


@pytest.mark.parametrize(("most", "renewed"), [("2", []), ("3", ["ballast-a"])])
async def test_a_node_that_takes_no_more_pods_is_left_as_it_is(
    fleet: Fleet, most: str, renewed: list[str]
) -> None:
    # A second pod would wait, and with it those of all nodes beyond the DaemonSet's maxSurge.
    fleet.pods["ballast-a"]["status"]["startTime"] = "2026-11-16T00:00:00Z"
    fleet.nodes["a"]["status"]["allocatable"]["pods"] = most
    fleet.pod("done", "a", "1")["status"]["phase"] = "Succeeded"
    await Rounds(fleet).at(0)
    assert fleet.renewed == renewed


async def test_a_renewal_that_is_refused_is_tried_once_a_minute(fleet: Fleet) -> None:
    fleet.pods["ballast-a"]["status"]["startTime"] = "2026-11-16T00:00:00Z"
    rounds = Rounds(fleet)
    fleet.may_label = False
    for second in range(0, 61, 15):
        await rounds.at(second)
    tried = rounds.registry.get_sample_value(
        "podscale_nodes_ballast_renewals_total", {"result": "failed"}
    )
    assert tried == 2
