"""Which checkpoints are written, and when."""

from podscale.core.selectors import selector
from tests.unit.vpa.model.worlds import NOW, WEB, usage, vpa, web
from vpa.model.checkpoint_selection import CheckpointSelection, SaveBand
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Oom
from vpa.model.samples.membership import VpaKey

APP = (WEB, "app")
BAND = SaveBand()


def cluster() -> ClusterModel:
    made = ClusterModel()
    web(made, "web-0", "web-1")
    return made


def fleet(count: int) -> tuple[ClusterModel, list[str]]:
    """Return so many VPAs of one pod each, and the pods."""
    world = ClusterModel()
    pods = [f"web-{number}" for number in range(count)]
    for number, pod in enumerate(pods):
        key = VpaKey("shop", f"vpa-{number}")
        world.put_vpa(vpa(name=key.name), selector.parse(f"app={pod}"), NOW)
        world.put_pod("shop", pod, {"app": pod}, ["app"], NOW)
    return world, pods


def test_nothing_measured_is_not_saved() -> None:
    assert CheckpointSelection(cluster()).due(NOW, BAND) == []


def test_what_has_not_moved_waits_for_an_hour() -> None:
    world = cluster()
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8))
    assert saver.due(NOW, BAND) == [APP]
    saver.saved([APP], NOW)
    world.take(usage(NOW + 60, 0.2, 5e8))
    assert saver.due(NOW + 60, BAND) == []
    assert saver.due(NOW + 3600, BAND) == [APP]


def test_without_dead_band_everything_is_saved_in_every_pass() -> None:
    world = cluster()
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8))
    saver.due(NOW, BAND)
    saver.saved([APP], NOW)
    world.take(usage(NOW + 60, 0.2, 5e8))  # the weights stay, count and time do not
    assert saver.due(NOW + 60, SaveBand(fraction=0.0)) == [APP], "upstream's way"


def test_without_dead_band_many_do_not_take_turns() -> None:
    world, pods = fleet(1500)
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8, pods=tuple(pods)))
    assert len(saver.due(NOW, SaveBand(fraction=0.0))) == 1500


def test_a_peak_or_an_oom_is_saved_at_once() -> None:
    world = cluster()
    saver = CheckpointSelection(world)
    for minute in range(600):
        world.take(usage(NOW + minute * 60.0, 0.2, 5e8, pods=("web-0", "web-1")))
    at = NOW + 600 * 60.0
    saver.due(at, BAND)
    saver.saved([APP], at)
    world.take(usage(at, 0.2, 5.01e8))
    assert saver.due(at, BAND) == [], "within its bucket"
    world.take(usage(at + 60, 0.2, 9e8))
    assert saver.due(at + 60, BAND) == [APP]
    saver.saved([APP], at + 60)
    assert saver.due(at + 60, BAND) == []
    world.record_oom(Oom("shop", "web-1", "app", 10, at + 60))
    assert saver.due(at + 60, BAND) == [APP]
    saver.saved([APP], at + 60)
    assert saver.due(at + 60, BAND) == []


def test_what_was_saved_is_remembered_when_other_vpas_come_and_go() -> None:
    world = cluster()
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8))
    saver.due(NOW, BAND)
    saver.saved([APP], NOW)
    web(world, "web-2", version="v2")
    assert saver.due(NOW + 60, BAND) == []


def test_many_that_move_together_take_turns_and_ooms_do_not_wait() -> None:
    world, pods = fleet(1500)
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8, pods=tuple(pods)))
    first = saver.due(NOW, BAND)
    saver.saved(first, NOW)
    assert len(first) == 1000
    killed = pods[int(first[0][0].name.removeprefix("vpa-"))]
    world.record_oom(Oom("shop", killed, "app", 10**9, NOW + 60))
    second = saver.due(NOW + 60, BAND)
    assert second[0] == first[0]
    assert set(second[1:]).isdisjoint(first)
    assert len(second) == 501


def test_those_that_fail_come_behind_those_that_go_through() -> None:
    world, pods = fleet(20)
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8, pods=tuple(pods)))
    first = saver.due(NOW, BAND)
    stuck, late = first[:8], first[8:]
    saver.failed(stuck[:4], NOW)
    saver.failed(stuck[4:], NOW + 60)
    assert saver.due(NOW + 120, BAND) == [*late, *stuck]
    saver.failed(stuck[:4], NOW + 120)
    assert saver.due(NOW + 180, BAND) == [*late, *stuck[4:], *stuck[:4]], "and take turns"
    at = NOW + 180
    world.record_oom(Oom("shop", pods[0], "app", 10**9, at))
    assert saver.due(NOW + 180, BAND)[:12] == late, "with news or without"
    saver.saved([*late, *stuck], NOW + 180)
    web(world)  # other columns than before
    world.take(usage(NOW + 300, 3.0, 5e9, pods=tuple(pods)))
    assert saver.due(NOW + 300, BAND)[:8] == stuck, "what went through is as good as the others"


def test_one_that_failed_comes_back_among_thousands_that_move() -> None:
    world, pods = fleet(2000)
    saver = CheckpointSelection(world)
    unsaved, passes = None, 0
    for number in range(20):
        now = NOW + 60.0 * number
        world.take(usage(now, 0.2 + number % 2 * 3.0, 5e8, pods=tuple(pods)))
        due = saver.due(now, BAND)
        if unsaved is None:
            unsaved = due[0]
            saver.failed(due, now)
            saver.saved(due[1:], now)
            continue
        passes += 1
        if unsaved in due:
            break
        saver.failed(due, now)
        saver.saved(due, now)
    assert passes <= 6


def test_thousands_that_fail_leave_room_for_one_that_does_not() -> None:
    world, pods = fleet(1500)
    saver = CheckpointSelection(world)
    world.take(usage(NOW, 0.2, 5e8, pods=tuple(pods)))
    first = saver.due(NOW, BAND)
    saver.failed(first, NOW)
    second = saver.due(NOW + 60, BAND)
    assert set(second[:500]).isdisjoint(first)
    saver.saved(second[:500], NOW + 60)
    assert set(saver.due(NOW + 120, BAND)) == set(first)
