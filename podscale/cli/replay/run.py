"""From the call to the report: files, plant, candidates."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from hpa.decide import Settings
from hpa.decide.reading import read as read_hpa
from hpa.simulate.load import LoadHistory
from hpa.simulate.verdict import oracle
from hpa.simulate.workload import Plant
from podscale.cli.output import progress
from podscale.cli.replay import files
from podscale.cli.replay.files import WrongInput
from podscale.cli.replay.shown import note_all
from podscale.core.duration import DurationError, format_go, parse_go
from podscale.core.quantity import QuantityError
from podscale.core.quantity import parse as parse_quantity
from podscale.replay.candidates import ReplayCandidate, ReplayRow, need_of, question, rows
from podscale.replay.errors import ReplayError
from podscale.replay.report import ReplayReport
from podscale.replay.trace_file import with_columns_of


class ReplayOptions(Struct, frozen=True):
    """The call, as it was written."""

    trace: str = ""
    hpa_files: tuple[str, ...] = ()
    scale: float = 1.0
    ready_after: str = "1m"
    metric_age: str = "15s"
    nodes_after: str = "0s"
    room: int | None = None
    requests: tuple[str, ...] = ()
    pod_capacity: str = ""
    replicas: int | None = None
    price: str = ""


def replayed(given: ReplayOptions) -> ReplayReport:
    """Return the report; raises ``WrongInput`` for what has to be changed first.

    Interrupted by Ctrl-C it holds what was done until then.
    """
    if not given.trace:
        raise WrongInput("say where the load comes from: --trace FILE")
    if not given.hpa_files:
        raise WrongInput("say what is to be tried: --hpa FILE, today's first")
    plain = [(file, files.plain_of_file(file)) for file in given.hpa_files]
    load, notes = files.trace_of_file(given.trace, given.scale)
    note_all(notes)
    plant = Plant(
        ready_after_s=(_seconds("--ready-after", given.ready_after),),
        metric_age_s=_seconds("--metric-age", given.metric_age),
        nodes_after_s=_seconds("--nodes-after", given.nodes_after),
        room=given.room,
        requests=files.requests_of(given.requests),
    )
    try:
        return _report(given, plain, load, plant)
    except ReplayError as error:
        raise WrongInput(str(error)) from None


def _report(
    given: ReplayOptions, plain: list[tuple[str, dict[str, Any]]], load: LoadHistory, plant: Plant
) -> ReplayReport:
    candidates = [
        ReplayCandidate(name, read_hpa(files.written(written))) for name, written in plain
    ]
    load = with_columns_of(load, [each.hpa for each in candidates])
    today = candidates[0].hpa
    settings = Settings()
    capacity = _amount("--pod-capacity", given.pod_capacity) if given.pod_capacity else None
    asked, words = question(
        today, load, plant, settings, pod_capacity=capacity, replicas=given.replicas
    )
    found: list[ReplayRow] = []
    is_whole = _collected(rows(asked, candidates, is_drawn=False, progress=progress()), found)
    need = need_of(asked, today)
    found.append(ReplayRow("oracle", oracle(need)))
    prices = files.prices_of_file(given.price) if given.price else None
    ready_after_s = sorted(plant.ready_after_s)[len(plant.ready_after_s) // 2]
    words.append(
        f"a pod is ready {format_go(ready_after_s)} after its creation, and metrics are "
        f"{format_go(plant.metric_age_s)} old"
    )
    return ReplayReport(
        found,
        words,
        need.left_out,
        float(load.time_s[0]),
        load.end_s,
        None if prices is None else prices.of_pod_hour(plant),
        prices.currency if prices else "",
        is_whole,
    )


def _collected(made: Iterator[ReplayRow], found: list[ReplayRow]) -> bool:
    # Whether all of it was made: Ctrl-C leaves what there is.
    try:
        found.extend(made)
    except KeyboardInterrupt:
        return False
    return True


def _seconds(flag: str, text: str) -> float:
    try:
        found = parse_go(text)
    except DurationError as error:
        raise WrongInput(f"{flag}: {error}") from None
    if found < 0:
        raise WrongInput(f"{flag}: {text} lies before the beginning")
    return found


def _amount(flag: str, text: str) -> float:
    try:
        found = float(parse_quantity(text))
    except QuantityError as error:
        raise WrongInput(f"{flag}: {error}") from None
    if found <= 0:
        raise WrongInput(f"{flag}: above zero is wanted, not {text}")
    return found
