"""Where a decision is repeated, ``decide`` would have decided the same, bit for bit."""

import math
import os
import struct
from array import array
from collections import Counter
from random import Random

from msgspec import structs

from hpa import statuses
from hpa.decide import Decision, Observation, Past, Scale, Settings, decide
from hpa.decide.observation import MetricAnswer, Recommendation
from hpa.decide.pods import Phase, Pods, Ready
from hpa.decide.spec import HPA, MetricSpec, Options, Status
from hpa.decide.steady import Steady, are_within, repeated, steady, totals_of
from hpa.traces import shape_of
from podscale.core.metrics import ExternalSample, ExternalSamples, ObjectSample, PodSamples, Sample
from podscale.core.samplecolumns import SampleColumns
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW

SEED = 20_280_000
COUNT = 3_000 if os.environ.get("PODSCALE_SHORT") else 60_000
DEADBAND = 0.1
SHARES = (0.0, 0.3, 0.7, 0.89, 0.9, 0.95, 1.0, 1.05, 1.1, 1.11, 1.5, 3.0)


def pods_of(draw: Random, count: int) -> Pods:
    names = tuple(f"web-{n}" for n in range(count))
    ready = bytes(draw.choice((Ready.TRUE, Ready.TRUE, Ready.FALSE)) for _ in names)
    ago = (NOW - 900.0,) * count
    phases, deleted = [Phase.RUNNING] * count, [0] * count
    if draw.random() < 0.2:
        phases[-1] = draw.choice((Phase.RUNNING, Phase.PENDING, Phase.FAILED, Phase.SUCCEEDED))
        deleted[0] = draw.choice((0, 1))
    return Pods(names, bytes(phases), ready, bytes(deleted), ago, ago, (0,) * count)


def answer(draw: Random, spec: MetricSpec, pods: Pods, total: int, at: float) -> MetricAnswer:
    """Return an answer of this total."""
    if spec.type == "External":
        part = draw.randint(min(total, 0), max(total, 0))
        series = [ExternalSample({}, Sample(each, at - 5)) for each in (part, total - part)]
        return ExternalSamples(series, at)
    if spec.type == "Object":
        return ObjectSample(Sample(total, at - 5), at)
    first, *others = [total // len(pods)] * len(pods)
    first += total - first - sum(others)
    times = array("d", [math.nan] * len(pods))
    held = SampleColumns(
        pods.names, array("q", [first, *others]).tobytes(), times.tobytes(), 30.0,
        draw.choice((None, total)),
    )  # fmt: skip
    return PodSamples(held, at)


def odd(
    draw: Random, known: MetricAnswer | None, spec: MetricSpec, pods: Pods, at: float
) -> MetricAnswer | None:
    """Return an answer that no bounds of totals are about."""
    fewer = pods.chosen(list(range(len(pods) - 1)))
    choices: list[MetricAnswer | None] = [None, worlds.failure(draw)]
    choices.append(worlds.answer(draw, spec, pods.names, at))
    if isinstance(known, ExternalSamples):
        choices += [structs.replace(known, left_out=1), structs.replace(known, series=())]
        choices.append(ObjectSample(known.series[0].sample, at))
    elif isinstance(known, ObjectSample):
        choices.append(ExternalSamples([ExternalSample({}, known.sample)], at))
    elif len(fewer):
        choices.append(answer(draw, MetricSpec("Pods"), fewer, 1000, at))
    return draw.choice(choices)


def usual(spec: MetricSpec, scale: Scale, pods: Pods) -> int:
    """Return the total that is just the target."""
    if spec.value_milli is not None:
        return spec.value_milli
    among = len(pods) if spec.type == "Pods" else scale.status_replicas
    return (spec.average_value_milli or 0) * among


def world(draw: Random) -> tuple[HPA, Scale, Pods]:
    made = worlds.hpa(draw)
    current = draw.choice((1, 2, 3, 7, 10, 50))
    bounds = sorted((draw.choice((1, current, current)), draw.choice((current, current + 3, 100))))
    metrics = [each for each in made.metrics if each.type in ("Pods", "External", "Object")]
    hpa = structs.replace(
        made,
        target=structs.replace(made.target, api_version="apps/v1"),
        metrics=tuple(metrics) or (MetricSpec("Pods", "qps", average_value_milli=1000),),
        min_replicas=bounds[0],
        max_replicas=bounds[1],
        options=draw.choice((Options(),) * 9 + (made.options,)),
    )
    status = draw.choice((current, current, current + 1, 0))
    return hpa, Scale(current, status, "app=web"), pods_of(draw, draw.choice((current, 1, 4)))


def settled(
    hpa: HPA, seen: Observation, past: Past, settings: Settings, times: int
) -> tuple[Observation, Decision]:
    """Return a decision on the status that the passes before it have written."""
    for _ in range(times):
        decision = decide(seen, past, structs.replace(settings, mode="replace"), NOW)
        hpa = structs.replace(hpa, status=decision.status)
        seen, past = structs.replace(seen, hpa=hpa), decision.past
    return seen, decide(seen, past, settings, NOW)


def shown_elsewhere(draw: Random, status: Status) -> Status:
    """Return the status as it may have been written some passes ago."""
    moved = tuple(
        structs.replace(
            each,
            value_milli=None if each.value_milli is None else _near(draw, each.value_milli),
            average_value_milli=(
                None if each.average_value_milli is None else _near(draw, each.average_value_milli)
            ),
        )
        for each in status.metrics
    )
    return structs.replace(status, metrics=moved)


def _near(draw: Random, value: int) -> int:
    return value + draw.choice((0, 0, 1, -1, value // 20, -value // 20))


def held(seen: Observation, decision: Decision, settings: Settings) -> Steady | None:
    if settings.mode == "shadow":
        return steady(decision, None)
    if statuses.is_due(seen.hpa, decision.status, deadband=DEADBAND, age_s=0.0):
        return None  # written, so nothing is kept of it
    margins = statuses.margins(seen.hpa, decision.status, DEADBAND)
    return None if margins is None else steady(decision, margins)


def within(totals: list[int], bounds: bytes) -> bool:
    """Return what ``are_within`` tells of one decision, and of its neighbours."""
    alone = are_within([totals], [bounds])
    wide = struct.pack("=qq", -(2**62), 2**62)
    assert are_within([[0], totals, [2**70, 1]], [wide, bounds, wide + wide]) == [
        True, *alone, False,
    ]  # fmt: skip
    return alone[0]


def test_what_is_repeated_would_have_been_decided() -> None:
    found: Counter[str] = Counter()
    for number in range(COUNT):
        draw = Random(SEED + number)
        hpa, scale, pods = world(draw)
        settings = worlds.settings(draw)
        past = draw.choice((Past(), Past(), worlds.past(draw, NOW)))
        totals = [
            min(int(usual(each, scale, pods) * draw.choice(SHARES)), 2**62) for each in hpa.metrics
        ]
        answers: tuple[MetricAnswer | None, ...] = tuple(
            answer(draw, spec, pods, total, NOW)
            for spec, total in zip(hpa.metrics, totals, strict=True)
        )
        if draw.random() < 0.1:
            other = worlds.metric(draw)
            answers = (*answers[:-1], odd(draw, answers[-1], other, pods, NOW))
        seen = Observation(hpa, scale, pods, answers)
        seen, decision = settled(hpa, seen, past, settings, draw.choice((1, 2)))
        if draw.random() < 0.5:
            hpa = structs.replace(seen.hpa, status=shown_elsewhere(draw, seen.hpa.status))
            seen = structs.replace(seen, hpa=hpa)
            decision = decide(seen, decision.past, settings, NOW)
        kept = held(seen, decision, settings)
        if kept is None:
            found["nothing kept"] += 1
            continue
        found["kept"] += 1
        past = rested = decision.past
        added: list[Recommendation] = []
        now = NOW
        for _ in range(6):
            now += draw.choice((15.0, 15.0, 15.0, 60.0, 400.0))
            ends = memoryview(kept.bounds).cast("q").tolist()
            drawn = [
                draw.choice(
                    (total, int(total * draw.uniform(0.9, 1.1)), low, high, low - 1, high + 1)
                )
                for total, low, high in zip(totals, ends[::2], ends[1::2], strict=True)
            ]
            drawn = [min(each, 10**17) for each in drawn]
            told: tuple[MetricAnswer | None, ...] = tuple(
                answer(draw, spec, pods, total, now)
                for spec, total in zip(seen.hpa.metrics, drawn, strict=True)
            )
            is_odd = draw.random() < 0.1
            if is_odd:
                other = worlds.metric(draw)
                told = (*told[:-1], odd(draw, told[-1], other, pods, now))
            seen = structs.replace(seen, answers=told)
            if draw.random() < 0.2:
                ups, downs = worlds.events(draw, now), worlds.events(draw, now)
                past = structs.replace(past, scale_ups=ups, scale_downs=downs)
                rested, added = past, []
            again = totals_of(seen.hpa.metrics, told, pods)
            assert is_odd or again == drawn
            full = decide(seen, past, settings, now)
            if again is None or not within(again, kept.bounds):
                found["decided"] += 1
                anew = held(seen, full, settings)
                if anew is None:
                    break
                kept, decision = anew, full
                past, rested, added = full.past, full.past, []
                continue
            found["repeated"] += 1
            found.update({each.type: 1 for each in seen.hpa.metrics})
            found["held away from what metrics ask"] += kept.desired != scale.spec_replicas
            added.append(Recommendation(kept.desired, now))
            after = repeated(rested, added, kept.window_s)
            found["several times"] += len(added) > 2
            assert full.replicas is None, number
            assert full.past == after, number
            assert full.labels == kept.labels, number
            assert (full.events, full.closing, full.error) == ((), (), None), number
            assert shape_of(full.trace) == shape_of(decision.trace), number
            if settings.mode != "shadow":
                due = statuses.is_due(seen.hpa, full.status, deadband=DEADBAND, age_s=0.0)
                assert not due, number
                assert full.is_status_changed != within(again, kept.unmoved), number
            past = after
    print(f"{COUNT} situations from seed {SEED}: {dict(found)}")
    assert found["kept"] > COUNT / 10
    assert min(found[each] for each in ("Pods", "External", "Object")) > COUNT / 50
    assert found["held away from what metrics ask"] > COUNT / 50
    assert found["several times"] > COUNT / 50
