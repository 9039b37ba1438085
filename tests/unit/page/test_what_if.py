"""What if: what a replay is given, and that it runs in a child, one at a time."""

import asyncio
import csv
import errno
import io
import os
import tempfile
from collections.abc import Callable

import msgspec
import pytest

from hpa.decide.api.reading import read, to_v2
from podscale.page.board import PointRing
from podscale.page.what_if import ReplayInputs, WhatIf, WhatIfAnswer, load_csv, replayed_spec
from tests.browser.scenes import SHOP, Played

ID = ("shop", "Deployment", "web")


def ring(*points: tuple[float, float | None, float | None, float | None]) -> PointRing:
    made = PointRing(3)
    for at, *values in points:
        made.add(at, *values)
    return made


def inputs(load: float = 3.0) -> ReplayInputs:
    drawn = ring(*((15.0 * row, load, 1.0, 1.0) for row in range(40)))
    found = load_csv(drawn, 10, 15.0)
    assert found is not None
    return ReplayInputs(found[0], msgspec.json.encode(replayed_spec(SHOP)), 2)


async def finished(what_if: WhatIf, given: Callable[[], ReplayInputs]) -> WhatIfAnswer:
    while True:
        found = what_if.answer(ID, given)
        if found.state != "running":
            return found
        await asyncio.sleep(0.05)


def test_the_load_is_counted_in_pods_at_the_target():
    drawn = ring((0, 24, 12, 3), (60, 6, 12, 3), (300, 60, 12, 10), (360, 60, 12, 10))
    text, replicas = load_csv(drawn, 10, 60)
    assert replicas == 3
    rows = list(csv.reader(io.StringIO(text)))[1:]
    # Older points hold; at the most pods, a load above its target is hidden.
    assert [value for _, value in rows] == ["6", "1.5", "1.5", "1.5", "1.5", "", ""]


def test_little_is_not_replayed():
    assert load_csv(ring((0, 24, 12, 3)), 10, 15) is None
    assert load_csv(ring((0, 24, 12, 3), (60, 24, 12, 3)), 10, 15) is None


def test_of_months_the_last_day_is_replayed():
    days = 90
    drawn = ring((0, 24, 12, 3), *((86400.0 * day, 12.0, 12.0, 7.0) for day in range(1, days)),
                 (86400.0 * days, 12.0, 12.0, 2.0))  # fmt: skip
    text, replicas = load_csv(drawn, 10, 15.0)
    assert len(text.splitlines()) == 1 + 5760
    assert replicas == 7, "that which held when it begins"


async def test_without_file_descriptors_it_fails_and_stops_nothing(monkeypatch):
    def none_left(**_):
        raise OSError(errno.EMFILE, "Too many open files")

    what_if = WhatIf(lambda: 0.0)
    monkeypatch.setattr(tempfile, "TemporaryFile", none_left)
    working = asyncio.create_task(what_if.run())
    found = await finished(what_if, inputs)
    assert (found.state, found.message) == ("failed", "no child process: Too many open files")
    assert not working.done()
    working.cancel()
    await asyncio.wait({working})


@pytest.mark.timeout(120)
async def test_it_needs_nothing_that_only_linux_has(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    what_if = WhatIf(lambda: 0.0)
    working = asyncio.create_task(what_if.run())
    found = await finished(what_if, inputs)
    assert found.state == "done", found.message
    assert not working.done()
    working.cancel()
    await asyncio.wait({working})


class Instant(WhatIf):
    """Replays that take no time, of which some end as nobody thought of."""

    async def _replayed(self, given: ReplayInputs) -> WhatIfAnswer:
        if given.replicas == 0:
            raise ZeroDivisionError("nobody thought of it")
        return WhatIfAnswer("done", made_at=self._wall())


async def test_whatever_is_asked_for_the_process_goes_on():
    now = [0.0]
    what_if = Instant(lambda: now[0])
    working = asyncio.create_task(what_if.run())
    for number in range(200):
        now[0] += 61.0  # each is asked for again and again, and forgotten in turn
        what_if.answer(("shop", "Deployment", "first"), inputs)
        for other in range(7):
            what_if.answer(("shop", "Deployment", f"web-{number}-{other}"), inputs)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    what_if.answer(ID, lambda: ReplayInputs("", b"", 0))
    assert (await finished(what_if, inputs)).message == "nobody thought of it"
    assert not working.done()
    working.cancel()
    await asyncio.wait({working})


async def test_forty_questions_and_an_old_one_again_end_nothing():
    now = [0.0]
    what_if = Instant(lambda: now[0])
    working = asyncio.create_task(what_if.run())
    old = ("shop", "Deployment", "web-0")
    for number in range(40):
        what_if.answer(("shop", "Deployment", f"web-{number}"), inputs)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    now[0] += 61.0
    # One more than are kept is done while the oldest, which is to be forgotten, waits again.
    what_if.answer(("shop", "Deployment", "web-40"), inputs)
    assert what_if.answer(old, inputs).state == "running"
    for _ in range(5):
        await asyncio.sleep(0)
    assert not working.done()
    assert what_if.answer(old, inputs).state == "done"
    working.cancel()
    await asyncio.wait({working})


def test_bounds_and_behavior_come_with_it():
    found = read(to_v2(replayed_spec(SHOP)))
    assert (found.min_replicas, found.max_replicas, found.behavior) == (
        SHOP.min_replicas, SHOP.max_replicas, SHOP.behavior,
    )  # fmt: skip


@pytest.mark.timeout(120)
async def test_a_child_replays_and_its_answer_is_kept_for_a_while():
    now = [1000.0]
    what_if = WhatIf(lambda: now[0])
    asked = []

    def given() -> ReplayInputs:
        asked.append(1)
        return inputs()

    assert what_if.answer(ID, given).state == "running"
    assert what_if.answer(ID, given).state == "running"
    working = asyncio.create_task(what_if.run())
    found = await finished(what_if, given)
    assert found.state == "done", found.message
    report = msgspec.json.decode(found.report)
    assert report["specs"][0]["podHours"] > 0
    assert len(asked) == 1
    now[0] += 61.0
    assert what_if.answer(ID, given).state == "running"
    assert len(asked) == 2
    working.cancel()
    await asyncio.wait({working})


async def test_what_it_cannot_replay_is_said_and_only_some_wait():
    what_if = WhatIf(lambda: 0.0)
    assert "less than two minutes" in what_if.answer(ID, lambda: None).message
    wrong = ReplayInputs("time,load\nsoon,1\n", b"{}", 1)
    what_if.answer(ID, lambda: wrong)
    for number in range(20):
        what_if.answer(("shop", "Deployment", f"web-{number}"), inputs)
    assert what_if.answer(("shop", "Deployment", "last"), inputs).message == "others are before it"
    working = asyncio.create_task(what_if.run())
    found = await finished(what_if, lambda: wrong)
    working.cancel()
    await asyncio.wait({working})
    assert found.state == "failed"
    assert "spec" in found.message or "HPA" in found.message, found.message


def test_a_question_for_which_there_is_no_place_costs_nothing():
    what_if = WhatIf(lambda: 0.0)
    asked = []
    for number in range(200):
        what_if.answer(("shop", "Deployment", f"web-{number}"), lambda: asked.append(1) or inputs())
    assert len(asked) == 8


async def test_the_page_says_it_under_the_same_rights_as_everything_else():
    played = Played()
    await played.play(600.0)
    answered = played.page.desk.reply("GET", "/page/api/whatif", {"id": ["shop/Deployment/web"]})
    assert msgspec.json.decode(answered.body)["state"] == "running"
    for wrong in ("shop/Deployment/none", "batch/Deployment/worker"):
        assert played.page.desk.reply("GET", "/page/api/whatif", {"id": [wrong]}).status == 404
