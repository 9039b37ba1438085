"""Questions that come again are answered as if they came for the first time."""

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from adapter.discovery.registry import MetricRegistry
from adapter.queries import readings
from adapter.queries.inquiry import JoinedQuestions
from adapter.queries.readings import Origin
from podscale.core.metrics import (
    ExternalMetric,
    NotFound,
    PodMetric,
    PodSamples,
    Unavailable,
)
from podscale.core.samplecolumns import SampleColumns
from podscale.feed.plan import Demand, KeyLabels, QueryPlan
from tests.unit.adapter.test_provider import METRIC, provider
from tests.unit.adapter.world import GivenObjects, RecordingFeed, reading

ORIGIN = Origin("m", "rules[0]", 30.0)
WEB, DB = PodMetric("shop", METRIC, "app=web"), PodMetric("shop", METRIC, "app=db")


def joined(questions, one, *asked):
    """Return what is asked together with the pods as they are."""
    members = [questions.pods(each.namespace, each.selector) for each in asked]
    return questions.joined(one, ORIGIN, asked[0].namespace, members)


def plan(series="m"):
    return QueryPlan("custom", "r", series, KeyLabels("namespace", "pod"), lambda *_: series)


def pods(**apps):
    return {
        "shop": {f"{app}-{n}": {"app": app} for app, count in apps.items() for n in range(count)}
    }


VALUES = st.sampled_from([0.0, -1.0, 1.005, 2e15, 9.3e15, 1e30, math.nan, math.inf]) | st.floats()
ALL = [*(f"{app}-{n}" for app in ("web", "db") for n in range(4)), "other"]
NAMES = st.sampled_from(ALL)
READINGS = st.builds(
    reading,
    st.dictionaries(NAMES, VALUES),
    stale=st.just({}) | st.dictionaries(NAMES, st.floats(300, 400), max_size=1),
    times=st.dictionaries(NAMES, st.floats(900, 1000))
    | st.builds(dict.fromkeys, st.just(tuple(ALL)), st.floats(900, 1000)),
)


@given(st.lists(READINGS, min_size=1, max_size=3))
def test_joined_answers_are_those_of_each_question_alone(found):
    questions = JoinedQuestions(GivenObjects(pods(web=3, db=2)))
    one = plan()
    for outcome in found:
        together = joined(questions, one, WEB, DB, WEB)
        answers = [readings.or_nothing(each) for each in together.answers(outcome)]
        alone = [
            readings.or_nothing(readings.pods(outcome, each.names, ORIGIN))
            for each in together.members
        ]
        assert answers == alone
        for each in answers:
            if isinstance(each, PodSamples) and isinstance(each.pods, SampleColumns):
                plain = SampleColumns(
                    each.pods.names, each.pods.values_raw, each.pods.times_raw, None
                )
                assert each.pods.total_milli == plain.total_milli
                # As bits: not known is equal to not known.
                assert struct.pack("d", each.pods.oldest_s) == struct.pack("d", plain.oldest_s)


def test_a_time_that_is_not_known_is_never_the_oldest():
    questions, one = JoinedQuestions(GivenObjects(pods(web=3, db=2))), plan()
    values = dict.fromkeys(("web-0", "web-1", "web-2", "db-0", "db-1"), 1.0)
    times = {"web-0": 990.0, "web-2": 980.0, "db-1": 950.0}
    answers = joined(questions, one, WEB, DB, WEB).answers(reading(values, times=times))
    assert [each.pods.oldest_s for each in answers] == [980.0, 950.0, 980.0]
    assert [each.pods.total_milli for each in answers] == [3000, 2000, 3000]


def test_a_failure_is_everybodys():
    questions, one = JoinedQuestions(GivenObjects(pods(web=3, db=2))), plan()
    down = Unavailable("PrometheusUnreachable", "down")
    assert joined(questions, one, WEB, DB).answers(down) == [down, down]


def test_what_comes_again_unchanged_is_the_same_demand():
    questions, one = JoinedQuestions(GivenObjects(pods(web=3, db=2))), plan()

    def asked() -> Demand:
        questions.grow_older()
        return joined(questions, one, WEB, DB).demand

    first = asked()
    assert first.names == ("db-0", "db-1", "web-0", "web-1", "web-2")
    assert all(asked() is first for _ in range(20))


def test_other_pods_are_asked_for_at_once():
    given = pods(web=3, db=2)
    questions, one = JoinedQuestions(GivenObjects(given)), plan()

    def names():
        return joined(questions, one, WEB, DB).demand.names

    assert len(names()) == 5
    given["shop"]["web-9"] = {"app": "web"}
    assert "web-9" in names()
    del given["shop"]["db-0"]
    assert "db-0" not in names()
    given["shop"]["web-0"] = {"app": "db"}  # the same number of pods, of others
    assert questions.pods("shop", "app=web").names == ("web-1", "web-2", "web-9")
    assert questions.pods("shop", "app=db").names == ("db-1", "web-0")


def test_how_many_pods_there_are_is_told_anew():
    given = pods(web=3, db=2)
    questions, one = JoinedQuestions(GivenObjects(given)), plan()

    def known():
        return joined(questions, one, WEB).demand.known

    assert known() == 5
    given["shop"]["other"] = {"app": "other"}
    assert known() == 6


def test_rows_that_lie_elsewhere_are_found_again():
    questions, one = JoinedQuestions(GivenObjects(pods(web=2))), plan()
    together = joined(questions, one, WEB)
    (first,) = together.answers(reading({"web-0": 1.0, "web-1": 2.0}))
    (second,) = together.answers(reading({"web-1": 2.0, "web-0": 1.0}))
    assert first == second
    (third,) = together.answers(reading({"web-1": 2.0}))
    assert list(third.pods) == ["web-1"]
    (none,) = together.answers(reading({"else": 2.0}))
    assert not none.pods


def test_another_plan_or_other_questions_are_other_demands():
    questions, one, other = JoinedQuestions(GivenObjects(pods(web=3, db=2))), plan(), plan("n")
    first = joined(questions, one, WEB).demand
    assert joined(questions, other, WEB).demand.plan is other
    both = joined(questions, one, WEB, DB)
    assert (first.names, len(both.demand.names)) == (("web-0", "web-1", "web-2"), 5)


def test_what_nobody_asks_any_more_is_forgotten():
    given = {f"ns-{n}": {"p": {"app": "web"}} for n in range(3000)}
    questions, one = JoinedQuestions(GivenObjects(given)), plan()

    def ask(namespaces):
        questions.grow_older()
        for each in namespaces:
            joined(questions, one, PodMetric(each, METRIC, ""))

    def count():
        return sum(
            len(aging._young) + len(aging._old) for aging in (questions._pods, questions._joined)
        )

    ask(list(given))
    assert count() == 6000
    for _ in range(3000):
        ask(["ns-0"] * 10)
    assert count() < 100


def test_what_is_asked_in_every_round_is_never_prepared_again():
    given = {f"ns-{n}": {"p": {"app": "web"}} for n in range(300)}
    questions, one = JoinedQuestions(GivenObjects(given)), plan()
    labels = [f"app in (web,{n})" for n in range(20)]

    def demands() -> list[Demand]:
        found = []
        for slot in range(0, 300, 20):  # a round in slots, as autoscalers ask
            questions.grow_older()
            for each in list(given)[slot : slot + 20]:
                asked = [PodMetric(each, METRIC, text) for text in labels]
                found.append(joined(questions, one, *asked).demand)
        return found

    first = demands()
    for _ in range(12):
        assert all(now is then for now, then in zip(demands(), first, strict=True))


async def test_questions_of_other_kinds_do_not_make_these_be_forgotten():
    given = {f"ns-{n}": {"p": {"app": "web"}} for n in range(300)}
    made = await provider(RecordingFeed(), given)
    others = [ExternalMetric("shop", f"queue-{n}", "") for n in range(5000)]

    async def asked() -> list[Demand]:
        for slot in range(0, 300, 20):
            mine = [PodMetric(each, METRIC, "") for each in list(given)[slot : slot + 20]]
            await made.answer([*mine, *others[: len(others) // 15]])
        aging = made._joined._joined
        return [each.demand for each in (*aging._old.values(), *aging._young.values())]

    first = {each.namespace: each for each in await asked()}
    assert len(first) == 300
    for _ in range(6):
        assert all(first[each.namespace] is each for each in await asked())


async def test_a_metric_that_a_relist_loses_is_unknown_at_once():
    made = await provider(RecordingFeed(), pods(web=3))
    (found,) = await made.answer([WEB])
    assert found.pods["web-0"].value_milli == 1500
    made._custom = MetricRegistry
    (gone,) = await made.answer([WEB])
    assert isinstance(gone, NotFound)
