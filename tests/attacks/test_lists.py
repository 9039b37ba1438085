"""What pods may expose costs the lists of others nothing: no turn of the loop, no metric, no bytes.

All labels and names are chosen by whoever is scraped; what bounds them is in
``podscale.feed.http.series`` and ``podscale.feed.decoding.splitter``.
"""

import random
from collections.abc import Iterator

import pytest

from adapter.apis.rules_api import told
from adapter.doctor.lints import KnownMetrics, lint
from adapter.rules import config
from podscale.feed.http.series import MOST_SHAPES
from tests.attacks.lists import (
    EXPOSED,
    HONEST,
    RULES,
    Labels,
    answer,
    cpu_s,
    exposed,
    grown_bytes,
    longest_turn_s,
    prometheus,
    relisted,
)
from tests.unit.adapter.world import rules

MiB = 1024 * 1024
NAME = "http_requests"  # an honest series has it too


def ordinary(count: int) -> Iterator[Labels]:
    """Yield as many series as people have, with one set of labels."""
    for number in range(count):
        yield {"__name__": "http_served", "namespace": "shop", "pod": f"web-{number}"}


def label_names(count: int) -> Iterator[Labels]:
    """Yield series of one name, each with a label name of its own."""
    for number in range(count):
        yield {"__name__": NAME, f"a{number}": "", "namespace": "evil", "pod": "evil-1"}


def label_sets(count: int) -> Iterator[Labels]:
    """Yield series of one name with any 20 of 40 label names."""
    chance = random.Random(1)
    for _ in range(count):
        chosen = sorted(chance.sample(range(40), 20))
        yield {"__name__": NAME, **{f"a{each:02}": "" for each in chosen}, "pod": "evil-1"}


def names_and_sets(count: int) -> Iterator[Labels]:
    """Yield series of many names, 100 sets of label names under each."""
    for number in range(count):
        name, place = divmod(number, 100)
        yield {"__name__": f"http_{name}", f"a{place}": "", f"b{number}": "", "pod": "evil-1"}


def wide_names(count: int) -> Iterator[Labels]:
    """Yield series of a name each, with 200 label names that nobody else has."""
    for number in range(count // 25):
        labels = {f"a{number}_{each}_of_a_series": "" for each in range(200)}
        yield {"__name__": f"http_{number}", **labels, "pod": "evil-1"}


def wanted_sets(count: int) -> Iterator[Labels]:
    """Yield series with any of the label names that stand for objects."""
    kinds = ("deployment", "deployments", "namespace", "node", "pod", "pods", "service", "services")
    chance = random.Random(2)
    for number in range(count):
        chosen = sorted(chance.sample(kinds, 4))
        yield {"__name__": NAME, **dict.fromkeys(chosen, "x"), f"z{number}": ""}


FLOODS = (label_names, label_sets, names_and_sets, wide_names, wanted_sets)

LONG: dict[str, list[Labels]] = {
    "a-million-labels": [{"__name__": NAME, **{f"a{n}": "" for n in range(1_000_000)}}],
    "labels-within-an-entry": [{"__name__": NAME, **{f"a{n}": "" for n in range(9_000)}}],
    "a-long-value": [{"__name__": NAME, "a": "x" * 16 * MiB}],
    "a-long-label-name": [{"A" * 4 * MiB: "", "__name__": NAME}],
    "a-label-name-within-an-entry": [{"A" * 100_000: "", "__name__": NAME}] * 20,
    "a-long-name": [{"__name__": "http_" + "x" * 4 * MiB, "pod": "evil-1"}],
    "a-name-within-an-entry": [
        {"__name__": f"http_{n}" + "x" * 100_000, "pod": "evil-1"} for n in range(100)
    ],
}

# What a splitter of the text might take for the end of an entry.
BORDERS = ("},{", "},{x", '"},{"', "}],", '"}]', "}]}", "},{,", "},{:", "},{\\", "\\")


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_a_flood_takes_no_metric_from_others(flood):
    with prometheus(answer(flood(3_000))) as url:
        relister = await relisted(url)
    assert exposed(relister) >= EXPOSED


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_the_work_is_linear_in_the_series(flood):
    figures = []
    for count in (1_000, 4_000):
        with prometheus(answer(flood(count))) as url:
            figures.append(min([await cpu_s(relisted(url)) for _ in range(3)]))
    print(f"{flood.__name__}: {figures[0]:.3f} s of CPU, {figures[1]:.3f} s for four times as many")
    assert figures[1] < 8 * figures[0]


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_a_flood_does_not_fill_the_memory(flood):
    for count in (750, 3_000):
        with prometheus(answer(flood(count))) as url:
            grown = await grown_bytes(relisted(url))
        print(f"{flood.__name__}: {count} series, {grown / MiB:.1f} MiB")
        assert grown < 64 * MiB


@pytest.mark.parametrize("case", LONG)
async def test_a_long_entry_is_left_out_by_itself(case):
    with prometheus(answer(LONG[case])) as url:
        relister = await relisted(url)
        grown = await grown_bytes(relisted(url))
    state = relister.states["rules[0]"]
    print(f"{case}: {grown / MiB:.1f} MiB")
    assert state.failure is None
    assert exposed(relister) == EXPOSED
    assert grown < 64 * MiB
    assert all(len(name) <= 1024 for name in told(state).crowded)
    assert told(state).crowded


async def test_nobody_waits_longer_for_a_turn_than_beside_ordinary_series():
    with prometheus(answer(ordinary(6_000))) as url:
        idle = min([(await longest_turn_s(relisted(url)))[0] for _ in range(3)])
    for flood in (*(flood(3_000) for flood in FLOODS), *LONG.values()):
        with prometheus(answer(flood)) as url:
            turns = [(await longest_turn_s(relisted(url)))[0] for _ in range(3)]
        print(f"{1000 * min(turns):.1f} ms against {1000 * idle:.1f} ms")
        assert min(turns) < 10 * idle


@pytest.mark.parametrize("last", [False, True], ids=["in-the-middle", "last"])
@pytest.mark.parametrize("long", [1, 300_000], ids=["short", "too-long"])
@pytest.mark.parametrize("border", BORDERS)
async def test_no_label_ends_an_entry_before_its_end(border, long, last):
    hostile = [
        {"__name__": f"http_{n}", "a": "x" * long + border, border: border}
        for n in range(2_000 if long == 1 else 3)
    ]
    body = answer(() if last else hostile)
    if last:
        tail = answer(hostile).partition(b'"data":[')[2]
        every = b'{"status":"success","data":[' + b",".join([
            answer(()).partition(b'"data":[')[2].removesuffix(b"]}"),
            tail[: tail.rindex(b',{"__name__":"http_requests"')],
        ])  # fmt: skip
        body = every + b'],"warnings":["store \\"}],\\" is away"]}'
    with prometheus(body) as url:
        relister = await relisted(url)
    state = relister.states["rules[0]"]
    assert state.failure is None
    assert exposed(relister) >= EXPOSED
    assert state.listing.shapes == len(HONEST) + (len(hostile) if long == 1 else 0)


async def test_what_is_not_looked_at_is_told_by_name():
    few = [*label_names(MOST_SHAPES)][1:]  # one set is the honest series'
    with prometheus(answer(few)) as url:
        assert told((await relisted(url)).states["rules[0]"]).crowded == ()
    with prometheus(answer(label_names(2 * MOST_SHAPES))) as url:
        crowded = told((await relisted(url)).states["rules[0]"]).crowded
    assert crowded == (NAME,)
    parsed = config.parse(RULES, "rules.yaml")
    known = KnownMetrics(crowded={"rules[0]": crowded})
    (found,) = [f for f in lint(parsed, rules(RULES), known) if f.lint == "TooManyLabels"]
    assert NAME in found.reason
    assert found.subject == "rules[0]"
