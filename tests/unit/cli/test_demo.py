"""The demo's pure parts: its clock, its loads, its last words, and what it cleans."""

import os
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from podscale.cli.demo import leftovers
from podscale.cli.demo import rules as demo_rules
from podscale.cli.demo.clock import Clock
from podscale.cli.demo.look import SceneLook
from podscale.cli.demo.scenes import PERIOD_S, SCENES, queue_load, shop_load
from podscale.cli.demo.summary import is_measured, summary


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
    rules = demo_rules.rules(2.0)
    assert yaml.safe_load(rules)["resourceRules"]["window"] == "20s"
    assert "[20s]" in rules
    assert "WINDOW" not in rules


def test_every_scene_is_in_a_namespace_of_its_own():
    assert len({scene.namespace for scene in SCENES}) == len(SCENES) == 3
    assert {scene.autoscaler["metadata"]["namespace"] for scene in SCENES} == {
        scene.namespace for scene in SCENES
    }


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
    with leftovers.directory() as own:
        assert leftovers.sweep() == []
        assert own.exists()
    assert list(scratch.iterdir()) == []


def test_a_dead_one_is_removed_and_strangers_are_not(scratch):
    dead = scratch / f"{leftovers.PREFIX}x"
    dead.mkdir()
    (dead / leftovers.LOCK).touch()
    # A number that now belongs to somebody else: this very process must survive.
    leftovers.note_child(dead, os.getpid())
    stranger = scratch / "other"
    stranger.mkdir()
    assert leftovers.sweep() == [dead]
    assert list(scratch.iterdir()) == [stranger]


def test_a_directory_that_is_just_being_made_is_left_alone(scratch):
    young = scratch / f"{leftovers.PREFIX}y"
    young.mkdir()
    assert leftovers.sweep() == []
    os.utime(young, (0, 0))
    assert leftovers.sweep() == [young]
    assert not Path(young).exists()
