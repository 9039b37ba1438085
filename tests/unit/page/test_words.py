"""What the page says of decisions: facts as text, changes as changes, kills where they were."""

import msgspec
import pytest
from msgspec import structs

from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.explain.reading import tell
from podscale.core.selectors import selector as selectors
from podscale.kube.client.wire import Time
from podscale.kube.objects.pod import ContainerState, Terminated
from podscale.page.answers import _words
from podscale.page.health import FeedHealth
from podscale.page.sampler import PageSources, Sampler, _Asked
from podscale.page.shown import reading, scaling_facts, scaling_mark
from podscale.page.values import ShownDecision
from tests.browser.scenes import START, Played
from tests.unit.hpa.decide.situations import (
    NOW,
    listed,
    per_pod,
    pod,
    queue,
    remembered,
    seen,
    series,
    usage,
    web,
)
from tests.unit.hpa.explain.test_words import SLOW

MARK = ShownDecision("k", 1.0, "scale", "t", "r", "up")


def facts(observation, *entries):
    trace = decide(observation, remembered(*entries), Settings(), NOW).trace
    return _words(MARK, explain(trace)).facts


def test_facts_are_text_without_braces_and_thousandths():
    busy = seen(
        web(per_pod(12_000), behavior=SLOW), 4, listed(*[pod()] * 4), [usage(*[14_424] * 4)]
    )
    found = facts(busy)
    assert found["target_average_value"] == "12"
    assert found["average_value"] == "14.424"
    idle = seen(web(per_pod(1000), behavior=SLOW), 12, listed(*[pod()] * 12), [usage(*[300] * 12)])
    held = facts(idle, (9, 60.0))
    assert held["recommendation"] == "replicas 9 age_s 60"
    limited = facts(seen(web(per_pod(1000), behavior=SLOW), 4, listed(*[pod()] * 4),
                         [usage(*[2500] * 4)]))  # fmt: skip
    assert limited["policy"] == "type Pods value 2 periodSeconds 60"
    summed = seen(web(queue(1000)), 4, listed(*[pod()] * 4), [series(600, 700)])
    assert facts(summed)["values"] == "0.6, 0.7"
    for shown in (found, held, limited):
        assert not any("{" in str(each) for each in shown.values())


@pytest.mark.parametrize(
    ("size", "used", "entries", "title", "direction"),
    [
        (12, 300, ((9, 60.0),), "12 → 9 replicas, metrics ask for 4", "down"),
        (4, 2500, (), "4 → 6 replicas, metrics ask for 10", "up"),
        (9, 850, ((10, 60.0),), "stays at 9, metrics ask for 8", "held"),
    ],
)
def test_a_change_that_is_limited_says_what_the_metrics_ask_for(
    size, used, entries, title, direction
):
    look = seen(
        web(per_pod(1000), behavior=SLOW), size, listed(*[pod()] * size), [usage(*[used] * size)]
    )
    trace = decide(look, remembered(*entries), Settings(), NOW).trace
    mark = scaling_mark("web", scaling_facts(trace, "ScaleDownStabilized"))
    assert (mark.title, mark.direction) == (title, direction)


def test_of_several_metrics_the_page_says_how_many_times_its_target_the_largest_is():
    look = seen(
        web(per_pod(1000), queue(10_000)),
        2,
        listed(pod(), pod()),
        [usage(1500, 1500), series(2000)],
    )
    found = reading(tell(decide(look, remembered(), Settings(), NOW).trace))
    assert (found.unit, found.load, found.target) == ("×", 1.5, 1.0)


async def test_an_oom_kill_is_a_mark_with_its_time_and_told_once():
    played = Played()
    await played.play(60.0)
    board = played.page.board
    (workload,) = [each for each in played.page.board if each.id[2] == "worker"]
    pods = tuple(played.page._sources.pods.select("batch", selectors.parse("app=worker")).views())
    run = Terminated("OOMKilled", Time(START - 9.0), Time(START + 30.0))
    state = ContainerState("app", False, 1, "running", "", None, run)
    killed = structs.replace(pods[0], states=(state,))
    sampler = Sampler(board, FeedHealth(None), PageSources(), wall=lambda: START, period_s=1.0)
    for _ in range(2):
        sampler._note_kills(_Asked(workload, (killed, *pods[1:]), ""))
    later = structs.replace(run, finished_at=Time(START + 50.0))
    state = structs.replace(state, last_terminated=later)
    sampler._note_kills(_Asked(workload, (structs.replace(killed, states=(state,)),), ""))
    told = [(mark.at, mark.title, mark.direction) for mark, _ in workload.marks]
    title = f"{killed.name} OOM-killed"
    assert told == [(START + 30.0, title, "failed"), (START + 50.0, title, "failed")]
    assert "Container app" in workload.marks[-1][1].why
    assert msgspec.json.encode(_words(*workload.marks[-1]))
    assert msgspec.json.encode(played.page.board.recent())
