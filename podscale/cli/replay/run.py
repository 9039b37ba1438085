"""From the call to the report: files or history, plant, candidates."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from msgspec import structs

from hpa.decide.api.reading import read as read_hpa
from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.simulate.loop import SimulatedRun, judge, oracle
from hpa.simulate.workload import Plant, held
from podscale.cli.cluster import ClusterChoice
from podscale.cli.inputs import WrongInput, seconds, write
from podscale.cli.output import Progress, progress
from podscale.cli.prometheus import PrometheusChoice
from podscale.cli.replay import inputs
from podscale.cli.replay.inputs import ReplayOptions, Subject
from podscale.cli.replay.shown import html_of
from podscale.core.quantity import QuantityError
from podscale.core.quantity import parse as parse_quantity
from podscale.core.times.duration import format_go
from podscale.replay import parallel
from podscale.replay.inputs import PriceList, ReplayError, with_columns_of
from podscale.replay.report import (
    RECORDED,
    AllReplays,
    NamedReplay,
    ReplayCandidate,
    ReplayQuestion,
    ReplayReport,
    ReplayRow,
    forecast_row,
    need_of,
    question,
    rows,
)
from podscale.replay.sweep import chosen, combinations, pareto, swept_field

_READY_AFTER_S = 60.0  # where nobody measured it
_SHORT_S = 3600.0  # of history
_MOST_UNSERVED_OFF, _MOST_PODS_OFF = 0.05, 0.25  # of today's replay from what was recorded


def replayed(cluster: ClusterChoice, given: ReplayOptions) -> ReplayReport:
    """Return the report; raises ``WrongInput`` for what has to be changed first.

    Interrupted by Ctrl-C it holds what was done until then.
    """
    _check(given)
    prices = inputs.converted(given.price, PriceList) if given.price else None
    try:
        return _report(given, _subject(cluster, given), prices, progress())
    except ReplayError as error:
        raise WrongInput(str(error)) from None


def all_replayed(cluster: ClusterChoice, given: ReplayOptions) -> AllReplays:
    """Return the reports of all HPAs of the namespaces chosen; raises as ``replayed`` does."""
    if given.trace:
        raise two_sources(given, f"drop {given.what}")
    if given.hpa_files or given.html or given.replicas is not None:
        raise WrongInput("--hpa, --html and --replicas are of one HPA: drop them, or say hpa/NAME")
    _check(given)
    prices = inputs.converted(given.price, PriceList) if given.price else None
    names: list[str] = []
    found: list[NamedReplay] = []

    def subjects() -> Iterator[Subject | str]:
        for name, one in inputs.all_recorded(cluster, given):
            names.append(name)
            yield str(one) if isinstance(one, ReplayError) else one

    is_whole = True
    # Workers ask nobody, and are shown no credentials.
    shared = (structs.replace(given, prometheus=PrometheusChoice()), prices)
    try:
        jobs = subjects()
        made = (
            parallel.over_dask(one_report, shared, jobs, given.dask)
            if given.dask
            # Not forked: connections and a child that reads are open here.
            else parallel.over_cores(
                one_report, shared, jobs, given.workers or parallel.cores(), "spawn"
            )
        )
        for each in made:
            report = ReplayError(each) if isinstance(each, str) else each
            found.append(NamedReplay(names[len(found)], report))
    except KeyboardInterrupt:
        is_whole = False
    except ReplayError as error:
        raise WrongInput(str(error)) from None
    return AllReplays(found, is_whole)


def one_report(
    shared: tuple[ReplayOptions, PriceList | None], subject: Subject | str
) -> ReplayReport | str:
    """Return what comes of one HPA: the work of one process. A text is why there is no report."""
    if isinstance(subject, str):
        return subject
    try:
        return _report(shared[0], subject, shared[1], lambda *_: None, cores=1)
    except (ReplayError, WrongInput) as error:
        return str(error)


def _check(given: ReplayOptions) -> None:
    if given.at_most_unserved and not given.sweeps:
        raise WrongInput("--at-most-unserved chooses among the specs of a --sweep")
    if given.at_most_unserved:
        share("--at-most-unserved", given.at_most_unserved)


def _subject(cluster: ClusterChoice, given: ReplayOptions) -> Subject:
    tried = [(file, inputs.plain_of_file(file)) for file in given.hpa_files]
    if given.trace:
        if given.what:
            raise two_sources(given, f"drop {given.what}")
        if not tried:
            raise WrongInput("specify at least one spec to try with --hpa FILE, today's first")
        load, notes = inputs.trace_of_file(given.trace, given.scale)
        return Subject(tried, load, inputs.requests_of(given.requests), (), notes)
    kind, _, name = (given.what or "").partition("/")
    if kind.lower() not in ("hpa", "horizontalpodautoscaler") or not name:
        raise WrongInput("specify hpa/NAME or --trace FILE")
    subject = inputs.recorded(cluster, name, given)
    return structs.replace(subject, specs=[*subject.specs, *tried])


def two_sources(given: ReplayOptions, instead: str) -> WrongInput:
    """Return the refusal of an object beside a trace; ``instead`` is how to replay the trace."""
    return WrongInput(
        f"{given.what} is in a cluster, and --trace {given.trace} a file: drop --trace to replay "
        f"what Prometheus has, or {instead} to replay the file"
    )


def _report(
    given: ReplayOptions,
    subject: Subject,
    prices: PriceList | None,
    told: Progress,
    *,
    cores: int | None = None,
) -> ReplayReport:
    ready_after_s = subject.ready_after_s or (_READY_AFTER_S,)
    if given.ready_after:
        ready_after_s = (seconds("--ready-after", given.ready_after),)
    plant = Plant(
        ready_after_s=ready_after_s,
        metric_age_s=seconds("--metric-age", given.metric_age),
        nodes_after_s=seconds("--nodes-after", given.nodes_after),
        room=given.room,
        requests=subject.requests,
    )
    named: list[tuple[str, Mapping[str, Any]]] = list(subject.specs)
    candidates = [_candidate(*each) for each in named]
    fields = [swept_field(each) for each in given.sweeps]
    if fields:
        combined = [(each.name, each.plain) for each in combinations(named[0][1], fields)]
        candidates += [_candidate(*each, where=f"--sweep {each[0]}: ") for each in combined]
        named += combined
    where = f"{given.trace}: " if given.trace else ""
    load = with_columns_of(subject.load, [each.hpa for each in candidates], where)
    today = candidates[0].hpa
    capacity = _amount("--pod-capacity", given.pod_capacity) if given.pod_capacity else None
    first = given.replicas
    if first is None and load.replicas is not None and not np.isnan(load.replicas[0]):
        first = int(load.replicas[0])
    asked, words = question(today, load, plant, Settings(), pod_capacity=capacity, replicas=first)
    found: list[ReplayRow] = []
    count = len(subject.specs)
    cores, dask = (1, "") if cores == 1 else (given.workers, given.dask)
    made = chain(
        rows(asked, candidates[:count], is_drawn=bool(given.html), cores=cores, dask=dask,
             progress=told),
        rows(asked, candidates[count:], is_drawn=False, cores=cores, dask=dask, progress=told),
    )  # fmt: skip
    is_whole = True
    try:
        found.extend(made)
    except KeyboardInterrupt:  # what there is stays
        is_whole = False
    swept = [(row.name, row.verdict) for row in found[count:]]
    best = None
    if given.at_most_unserved:
        best = chosen(swept, share("--at-most-unserved", given.at_most_unserved))
        if best is None:
            words.append(f"no spec of the sweep leaves at most {given.at_most_unserved} unserved")
    if swept:
        front = set(pareto(swept))
        found = [*found[:count],
                 *sorted((row for row in found[count:] if row.name in front),
                         key=lambda row: row.verdict.pod_hours)]  # fmt: skip
        words.append(f"showing only the best trade-offs of {len(swept)} specs")
    gate = None
    if given.is_forecast and is_whole:
        row, gate, sentence = forecast_row(asked, today)
        found.insert(count, row)
        words.append(sentence)
    found += _beside(asked, today)
    middle_s = sorted(ready_after_s)[len(ready_after_s) // 2]
    source = "measured" if subject.ready_after_s else "assumed"
    source = "--ready-after" if given.ready_after else source
    words.append(
        f"a pod is ready {format_go(round(middle_s, 1))} after its creation ({source}), and "
        f"metrics are {format_go(plant.metric_age_s)} old"
    )
    need = need_of(asked, today)
    report = ReplayReport(
        found,
        [*_cautions(load.end_s - float(load.time_s[0]), found), *words, *subject.notes],
        need.left_out,
        float(load.time_s[0]),
        load.end_s,
        None if prices is None else prices.of_pod_hour(plant),
        prices.currency if prices else "",
        is_whole,
        _pasted(dict(named)[best]) if best else None,
        best or "",
        gate,
        f"ready after {middle_s:.3g} s, {source}",
    )
    if given.html:
        named_hpa = f"{today.namespace}/{today.name}".lstrip("/")
        text = html_of(report, load, need, f"Replay of hpa/{named_hpa}")
        write(given.html, text)
    return report


def _cautions(span_s: float, rows: list[ReplayRow]) -> Iterator[str]:
    if span_s < _SHORT_S:
        yield f"caution: only {format_go(round(span_s))} of history; rates per day are a guess"
    today = rows[0].verdict
    for was in (row.verdict for row in rows if row.name == RECORDED):
        is_far = abs(today.pod_hours - was.pod_hours) > _MOST_PODS_OFF * was.pod_hours
        if is_far or abs(today.unserved - was.unserved) > _MOST_UNSERVED_OFF:
            yield (
                f"caution: the replay of today's spec has {today.unserved:.1%} unserved and "
                f"{today.pod_hours:.3g} pod-hours, but {was.unserved:.1%} and {was.pod_hours:.3g} "
                "were recorded; correct --ready-after, --metric-age or --pod-capacity first"
            )


def _pasted(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    # As somebody would write it: without what the API server adds.
    metadata = {key: plain["metadata"][key] for key in ("name", "namespace", "annotations")
                if key in plain["metadata"]}  # fmt: skip
    kind = plain.get("kind", "HorizontalPodAutoscaler")
    return {"apiVersion": plain.get("apiVersion", "autoscaling/v2"), "kind": kind,
            "metadata": metadata, "spec": plain["spec"]}  # fmt: skip


def _beside(asked: ReplayQuestion, today: HPA) -> list[ReplayRow]:
    # What was recorded, where that is known, and the oracle.
    need = need_of(asked, today)
    found = []
    if asked.load.replicas is not None:
        sizes = held(asked.load, asked.load.replicas, need.time_s)
        known = structs.replace(need, is_known=need.is_known & ~np.isnan(sizes))
        whole = np.nan_to_num(sizes).astype(np.int64)
        run = SimulatedRun(need.time_s, whole, whole)
        found.append(ReplayRow(RECORDED, judge(run, today, asked.load, asked.plant, known), run))
    return [*found, ReplayRow("oracle", oracle(need))]


def _candidate(name: str, plain: Mapping[str, Any], where: str = "") -> ReplayCandidate:
    try:
        return ReplayCandidate(name, read_hpa(inputs.written(dict(plain))))
    except ReplayError as error:
        raise ReplayError(f"{where}{error}") from None


def _amount(flag: str, text: str) -> float:
    try:
        found = float(parse_quantity(text))
    except QuantityError as error:
        raise WrongInput(f"{flag}: {error}") from None
    if found <= 0:
        raise WrongInput(f"{flag}: above zero is wanted, not {text}")
    return found


def share(flag: str, text: str, most: float = 1.0) -> float:
    """Return the share that 0.1% or 0.001 writes; raises ``WrongInput``."""
    try:
        found = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= most:
        raise WrongInput(f"{flag} {text}: a share is wanted, such as 0.15 or 0.1%")
    return found
