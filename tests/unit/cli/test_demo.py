"""The demo's pure parts: its clock, its loads, its last words, and what it cleans."""

import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from textual.widgets import Static

from hpa.history.decision_log import DecisionLog
from podscale.cli import entry
from podscale.cli.demo import command, measurements
from podscale.cli.demo import stage as demo_stage
from podscale.cli.demo.look import Lines, PodLook, SceneLook, is_measured, reason_of, summary
from podscale.cli.demo.look import look as look_at
from podscale.cli.demo.scenes import PERIOD_S, SCENES, Clock, queue_load, shop_load
from podscale.cli.demo.screen import DemoApp
from podscale.cli.demo.stage import DemoError, DemoStage
from podscale.core.metrics import PodSamples, Sample
from podscale.explain.decision_history import ChangeRing
from tests.browser.scenes import SHOP, START, Autoscaled


def look(scene, at_s, replicas, **more):
    return SceneLook(scene, at_s, "", replicas, (), "", True, **more)


def test_a_faster_clock_passes_faster_and_begins_now():
    clock = Clock(1000.0)
    assert clock() == pytest.approx(time.time(), abs=60)
    before, real = clock(), time.monotonic()
    time.sleep(0.02)
    assert clock() - before >= (time.monotonic() - real) * 900
    assert clock.real_s(15.0) == 0.015
    assert clock.flag(15.0) == "0.015s"


def test_the_loads_go_up_and_come_back():
    day = [shop_load(second) for second in range(int(PERIOD_S))]
    assert min(day) == pytest.approx(12, abs=0.5)
    assert max(day) == pytest.approx(120, abs=0.5)
    assert {queue_load(second) for second in range(int(PERIOD_S))} == {0.0, 12.0}


def test_the_rules_ask_for_windows_of_ten_scrapes():
    rules = demo_stage.rules(2.0)
    assert yaml.safe_load(rules)["resourceRules"]["window"] == "20s"
    assert "[20s]" in rules
    assert "WINDOW" not in rules


def test_every_scene_is_in_a_namespace_of_its_own():
    assert len({scene.namespace for scene in SCENES}) == len(SCENES) == 5
    for scene in SCENES:
        if scene.autoscaler is not None:
            assert scene.autoscaler["metadata"]["namespace"] == scene.namespace


def node_row(name, reason, measured, usage, allocatable):
    cpu = {"usage": usage, "requested": 3.0, "ballast": 0.0, "allocatable": allocatable}
    return {"name": name, "reason": reason, "measured": measured, "cpu": cpu}


async def look_at_nodes(*rows):
    scene = next(each for each in SCENES if each.name == "nodes")

    class Told(DemoStage):
        async def get(self, path):
            return {"rows": rows} if path == scene.decision else None

    deployments = SimpleNamespace(
        get=lambda *_: {"spec": {"replicas": 1}}, find=lambda *_: None, put=lambda _: None
    )
    cluster = SimpleNamespace(server=SimpleNamespace(objects=deployments))
    clock = Clock(1.0)
    return await look_at(Told(cluster, clock, None, Path(), "", clock(), None, print), scene)


@pytest.mark.parametrize(
    ("reason", "measured", "says"),
    [
        ("Loaded", 1_795_000_000.0, "node-1 uses 4.4 of 16 cores"),
        ("StaleUsage", 1_795_000_000.0,
         "node-1 used 4.4 of 16 cores when it was last measured, at 2026-11-18T11:06:40Z"),
        ("StaleUsage", None, "node-1 was never measured"),
    ],
)  # fmt: skip
async def test_usage_that_is_old_is_told_as_the_last_known(reason, measured, says):
    usage = None if measured is None else 4.4
    found = await look_at_nodes(node_row("node-1", reason, measured, usage, 16.0))
    assert f"{reason}: {says}, its pods request 3.0" in found.reason
    assert ("cores last used" in found.pods[0].note) == (reason == "StaleUsage")


async def test_a_node_without_sizes_is_shown_as_unreadable():
    bare = node_row("bare", "Unreadable", None, None, None)
    found = await look_at_nodes(bare, node_row("node-1", "Loaded", 1_795_000_000.0, 4.4, 16.0))
    assert [pod.name for pod in found.pods] == ["bare", "node-1"]
    assert found.pods[0].note == "Unreadable: no size in its status"
    assert found.reason.startswith("Loaded: node-1 uses 4.4")


async def test_nodes_are_told_as_nodes_and_without_replicas(capsys):
    found = await look_at_nodes(node_row("node-1", "Loaded", 1_795_000_000.0, 4.4, 16.0))
    scene = next(each for each in SCENES if each.name == "nodes")
    Lines(scene).show({"nodes": [found]}, [])
    drawn_lines = await drawn((100, 24), scene=scene, shown={"nodes": [found]})
    for told in (capsys.readouterr().out, "\n".join(drawn_lines)):
        assert "replicas" not in told
        assert "the cruncher takes" in told
    assert any(line.startswith("cores of ballast: ") for line in drawn_lines)


def test_a_part_that_fails_ends_the_demo_with_a_line_or_with_its_traceback(monkeypatch, capsys):
    async def failing(*_: object) -> int:
        try:
            raise ZeroDivisionError("of a part")
        except ZeroDivisionError as error:
            raise DemoError("a part failed") from error

    monkeypatch.setattr(command, "_until_signalled", failing)
    with pytest.raises(SystemExit) as ended:
        entry.main(["podscale", "demo"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "podscale demo: a part failed\n"
    with pytest.raises(DemoError) as raised:
        entry.main(["podscale", "demo", "--debug"])
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_the_summary_tells_what_followed_what():
    told = summary(
        {
            "shop": [look("shop", at, size, load_value=load) for at, size, load in
                     [(0, 2, 12), (10, 6, 100), (20, 3, 30)]],
            "worker": [look("worker", 0, 2, request_mib=(256.0, 256.0)),
                       look("worker", 9, 2, request_mib=(400.0, 256.0), restarts=3)],
            "queue": [look("queue", at, size, load_value=9.0) for at, size in
                      [(0, 1), (1, 0), (2, 2)]],
        }
    )  # fmt: skip
    assert told == [
        (
            "shop: in 20 s the load went from 12 to 100 requests/s; replicas followed between 2 "
            "and 6, up once and down once; now: 3."
        ),
        (
            "worker: it was killed for memory 3 times; its memory request was resized from 256 to "
            "400 MiB."
        ),
        (
            "queue: up to 9 messages waited; replicas went to zero once and came back once, "
            "at most 2."
        ),
    ]


def test_the_summary_of_a_demo_that_was_ended_early_tells_of_nothing_that_was_not():
    told = summary(
        {
            "shop": [look("shop", 5, 2, load_value=12)],
            "worker": [look("worker", 5, 2, request_mib=(256.0,), restarts=2)],
            "queue": [look("queue", 5, 1, load_value=1.0)],
        }
    )
    assert told == [
        "shop: in 5 s the load went from 12 to 12 requests/s; replicas stayed at 2.",
        "worker: it was killed for memory twice; its memory request stayed 256 MiB.",
        "queue: up to 1 message waited; replicas stayed at 1.",
    ]
    assert summary({"worker": [look("worker", 5, 2, request_mib=(256.0,))]}) == [
        "worker: it was not killed; its memory request stayed 256 MiB."
    ]


def test_a_demo_that_measured_nothing_says_so():
    assert not is_measured({"shop": []})
    assert is_measured({"shop": [look("shop", 0, 2)]})


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_living_demo_is_left_alone(scratch):
    with measurements.scratch_directory() as own:
        assert measurements.sweep() == []
        assert own.exists()
    assert list(scratch.iterdir()) == []


def test_a_dead_one_is_removed_and_strangers_are_not(scratch):
    dead = scratch / f"{measurements.PREFIX}x"
    dead.mkdir()
    (dead / measurements.LOCK).touch()
    stranger = scratch / "other"
    stranger.mkdir()
    assert measurements.sweep() == [dead]
    assert list(scratch.iterdir()) == [stranger]


def test_a_directory_that_is_just_being_made_is_left_alone(scratch):
    young = scratch / f"{measurements.PREFIX}y"
    young.mkdir()
    assert measurements.sweep() == []
    os.utime(young, (0, 0))
    assert measurements.sweep() == [young]
    assert not Path(young).exists()


REASON = (
    "TargetMissed: http_requests_per_second of 10 pods is 14.5 on average and is to be 12. "
    "ScaleUpLimited: the policy of behavior.scaleUp allows 4 more pods within 15s."
)


def shop(at_s: float = 40.0, *, replicas: int = 10, reason: str = REASON) -> SceneLook:
    pods = tuple(PodLook(f"web-7d9fd5c9b6-{n:05d}", 14.5, 1.2) for n in range(replicas))
    return SceneLook("shop", at_s, "118.0 req/s", replicas, pods, reason, True, 118.0)


def looks() -> dict[str, Sequence[SceneLook]]:
    worker = PodLook("worker-1", 260.0, 0.7, " 260 of  384 MiB, requests  256, killed 2x")
    return {
        "shop": [shop(at, replicas=2 + at // 10) for at in range(0, 80, 2)],
        "worker": [look("worker", 40, 2, request_mib=(256.0,))],
        "queue": [
            SceneLook("queue", 40, "12 messages/s in, 7 waiting", 3, (worker,), REASON, True, 7.0)
        ],
    }


async def drawn(
    size: tuple[int, int], *keys: str, scene=SCENES[0], shown=None, warnings: Sequence[str] = ()
) -> list[str]:
    """What a terminal of this size shows after these keys."""
    app = DemoApp(scene)
    async with app.run_test(size=size) as pilot:
        app.show(looks() if shown is None else shown, warnings)
        await pilot.press(*keys)
        await pilot.pause()
        lines = [
            "".join(part.text for part in line).rstrip()
            for line in app.screen._compositor.render_strips()
        ]
    assert len(lines) <= size[1]
    return [line for line in lines if line]


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 10), (200, 50)])
async def test_the_screen_fits_and_the_reason_stays_on_it(width, height):
    lines = await drawn((width, height))
    assert max(map(len, lines)) <= width
    assert any(line.startswith("TargetMissed:") for line in lines)


async def test_a_large_terminal_shows_pods_and_the_other_scenes():
    lines = await drawn((80, 40))
    assert any(line.startswith("web-") and "█" in line for line in lines)
    assert any(line.startswith("jobs/worker: ") for line in lines)


async def test_the_line_of_bars_says_what_it_shows_and_over_which_time():
    assert "replicas: 2 to 9 in 78 s" in await drawn((80, 24))
    assert "MiB of memory requested: 256 to 256 in 0 s" in await drawn((80, 24), "2")


async def test_keys_choose_the_scene_and_show_help():
    app = DemoApp(SCENES[0])
    async with app.run_test(size=(80, 24)) as pilot:
        app.show(looks(), [])

        async def text(*keys: str) -> str:
            await pilot.press(*keys)
            return str(app.query_one("#decision", Static).render())

        plain = await text()
        assert plain.startswith("shop/web: ")
        assert (await text("2")).startswith("jobs/worker: ")
        assert (await text("3")).startswith("orders/consumer: ")
        assert await text("9", "x", "0", "1") == plain
        assert "Ctrl-C ends the demo" in await text("question_mark")
        assert await text("question_mark") == plain
        await pilot.press("q")
    assert not app.is_running


async def test_what_the_cluster_says_is_no_markup():
    lines = await drawn((80, 24), shown={"shop": [shop(reason="[/x] closes [bold]nothing")]})
    assert "[/x] closes [bold]nothing" in lines


async def test_a_refused_rules_file_is_said_on_the_screen_and_once_in_a_pipe(capsys):
    refused = "rules file refused, the old rules stay: rules.yaml:3:1: no such key"
    assert any(refused in line for line in await drawn((80, 10), warnings=[refused]))
    assert not any("refused" in line for line in await drawn((80, 10)))
    lines = Lines(SCENES[0])
    for warnings in ([], [refused], [refused], [], [refused]):
        lines.show({}, warnings)
    assert capsys.readouterr().err.count(refused) == 2


@pytest.mark.parametrize(
    ("mended", "says"),
    [
        ("rules: [other]", "rules file mended, the new rules are in force"),
        ("rules: []", "rules file is again what it was, nothing has changed"),
    ],
)
async def test_the_end_of_a_refused_rules_file_is_said_once_and_as_it_is(tmp_path, mended, says):
    class Told(DemoStage):
        async def get(self, _path):
            return {"problem": problem, "config": config}

    said = []
    cluster = SimpleNamespace(server=SimpleNamespace(objects=None))
    running = Told(cluster, Clock(1.0), None, tmp_path, "", 0.0, None, said.append)
    config = "rules: []"
    for problem, count in (("", 0), ("line 1", 0), ("line 2", 0), ("", 1), ("", 1)):
        config = mended if count else config
        assert bool(await running.warnings()) is bool(problem)
        assert len(said) == count
    assert said == [says]


def test_what_happens_beside_the_scenes_is_said_with_its_time(capsys):
    lines = Lines(SCENES[0])
    lines.show({"shop": [shop(at_s=73.0)]}, ["Prometheus does not answer since 12:00:00Z"])
    lines.say("Prometheus answers again")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "podscale demo: 73s Prometheus does not answer since 12:00:00Z",
        "podscale demo: 73s Prometheus answers again",
    ]


async def test_the_pages_address_stands_on_the_screen_and_in_the_help():
    app = DemoApp(SCENES[0])
    app.page_url = "http://127.0.0.1:8087/page/"
    async with app.run_test(size=(80, 24)) as pilot:
        app.show(looks(), [])
        app.say("Prometheus answers again")
        app.show(looks(), [])
        text = str(app.query_one("#decision", Static).render())
        assert text.startswith("Page: http://127.0.0.1:8087/page/")
        assert "78s  Prometheus answers again" in str(app.query_one("#pods", Static).render())
        await pilot.press("question_mark")
        text = str(app.query_one("#decision", Static).render())
        assert "shows every decision: http://127.0.0.1:8087/page/" in text


async def test_the_headline_of_a_scene_is_the_one_sentence_of_its_decision():
    why = "memory: 256Mi → 308Mi (peak 268Mi + 15%); pod worker-1 waits: another pod restarts."
    status = {"why": why, "first_reason": "PercentileOfUsage", "pods": [],
              "sentences": ["app memory: not managed.", "pod worker-0 is unchanged."]}  # fmt: skip
    assert reason_of(status) == f"{why} (PercentileOfUsage)"
    acting = [{"first_reason": "QuickOom", "decision": {"action": "resize"}}]
    assert reason_of({**status, "pods": acting}) == f"{why} (QuickOom)"
    assert reason_of({}) == ""


async def test_decisions_of_ten_minutes_are_known(monkeypatch):
    for name in ("most", "most_bytes"):
        monkeypatch.setattr(ChangeRing, name, getattr(ChangeRing, name))
    demo_stage.remember_ten_minutes()
    shop = Autoscaled(SHOP, 10, busy_answer)
    log = DecisionLog()
    for turn in range(125):
        shop.size = 10
        shop.step(log, START + 5.0 * turn)
    since = log.known_since(("shop", "web"))
    assert since is not None
    assert START + 5.0 * 124 - since >= 600
    assert log.at(("shop", "web"), START + 5.0 * 124 - 600) is not None


def busy_answer(shop, now):
    # Another proposal in every pass, and digits that cannot be packed.
    chance = random.Random(now)
    each = 6_000 + 9_000 * (round(now / 5) % 2)
    samples = {name: Sample(each + chance.randrange(999), now - 1.0) for name in shop.names}
    return PodSamples(samples, now)


def test_lines_for_a_pipe_have_at_most_200_characters(capsys):
    long = " ".join([REASON] * 5)
    lines = Lines(SCENES[0])
    lines.show({"shop": [shop(reason=long, replicas=60)]}, [])
    lines.show({"shop": [shop(reason=long, replicas=9)]}, ["x" * 500])
    told = capsys.readouterr()
    assert max(map(len, (told.out + told.err).splitlines())) <= 200
    assert " ".join(told.out.split()).count(long) == 1  # nothing of it is lost, and it is said once


def test_both_axes_are_told_in_one_sentence():
    def told(*seen: tuple[int, int]) -> list[str]:
        looks = [
            SceneLook("both", 5.0 * at, "", replicas, (), "", True, request_milli=milli)
            for at, (replicas, milli) in enumerate(seen)
        ]
        return summary({"both": looks})

    assert told((2, 0), (2, 100), (7, 100)) == [
        "both: replicas went between 2 and 7, and the CPU request stayed 100m."
    ]
    assert told((4, 100), (4, 250)) == [
        "both: replicas stayed at 4, and the CPU request went from 100m to 250m."
    ]
