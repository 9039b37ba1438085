"""From the call to the report: names, prices, Prometheus's history."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from msgspec import Struct

from podscale.cli.cluster import ClusterChoice
from podscale.cli.inputs import WrongInput, write
from podscale.cli.output import printable, progress
from podscale.cli.prometheus import PrometheusChoice, PrometheusUnanswered
from podscale.cli.replay.files import converted
from podscale.cli.replay.run import seconds, share
from podscale.cli.report.shown import html_of
from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.range_reader import HistoryReader
from podscale.replay.fleet.assembly import report_of, with_targets
from podscale.replay.fleet.blocks import BLOCK_S
from podscale.replay.fleet.names import FleetNames
from podscale.replay.fleet.patches import PatchForm, WorkloadPatch, file_name, patches_of
from podscale.replay.fleet.reading import FleetPast, FleetReader, FleetSpan
from podscale.replay.fleet.report import FleetReport
from podscale.replay.fleet.sizing import Estimator, RequestChoice
from podscale.replay.price import PriceList

if TYPE_CHECKING:
    from podscale.feed.options import PrometheusOptions

_DEADLINE_S = 30.0


class ReportOptions(Struct, frozen=True):
    """The call, as it was written."""

    since: str = "8d"
    step: str = "5m"
    prometheus: PrometheusChoice = PrometheusChoice()
    names: str = ""
    estimator: Estimator = "vpa"
    percentile: float = 0.9
    min_cpu_milli: float = 25.0
    min_memory_mb: float = 250.0
    price: str = ""
    patches: str = ""
    patches_form: PatchForm = "kustomize"
    max_risk: str = "1%"
    html: str = ""


def reported(cluster: ClusterChoice, given: ReportOptions) -> FleetReport:
    """Return the report; raises ``WrongInput`` for what has to be changed first, and
    ``PrometheusUnanswered``."""
    names = converted(given.names, FleetNames) if given.names else FleetNames()
    prices = converted(given.price, PriceList) if given.price else None
    step_s = round(seconds("--step", given.step))
    if step_s < 1 or 3600 % step_s:
        raise WrongInput(f"--step {given.step}: an hour has to be a number of whole steps")
    blocks = int(seconds("--since", given.since) // BLOCK_S)
    if not blocks:
        raise WrongInput(f"--since {given.since}: six hours are the least that says anything")
    most_risk = share("--max-risk", given.max_risk)
    only = cluster.only_namespace
    source = given.prometheus.options(_DEADLINE_S)
    if source is None:
        raise WrongInput("say where the history is: --prometheus-url URL")
    try:
        past, span = asyncio.run(_past(source, names, only, blocks, step_s, given.estimator))
    except QueryError as error:
        raise PrometheusUnanswered(source.url, error) from None
    if not past.usage.containers:
        where = f"of namespace {only} " if only else ""
        raise WrongInput(
            f"Prometheus has no {names.cpu} or {names.memory} {where}in the last {given.since}: "
            "are they called otherwise? (--names FILE)"
        )
    choice = RequestChoice(
        given.estimator, given.percentile, given.min_cpu_milli, given.min_memory_mb
    )
    report = with_targets(report_of(past, span, choice, prices, progress()), past, progress())
    if given.patches:
        patches = patches_of(report, most_risk, given.patches_form)
        _write_patches(given.patches, patches, given.patches_form)
    if given.html:
        write(given.html, html_of(report, only))
    return report


async def _past(
    source: "PrometheusOptions",
    names: FleetNames,
    only: str,
    blocks: int,
    step_s: int,
    estimator: Estimator,
) -> tuple[FleetPast, FleetSpan]:
    async with PrometheusClient(source) as client:
        now = await client.clock_s()
    span = FleetSpan(int(now), blocks, step_s, only)
    async with HistoryReader(source) as reader:
        fleet = FleetReader(reader, names, span, progress())
        return await fleet.past(is_autopilot=estimator == "autopilot"), span


def _write_patches(folder: str, patches: list[WorkloadPatch], form: PatchForm) -> None:
    """Write one file for each patch, and for kustomize the list of them; raises ``WrongInput``."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise WrongInput(f"--patches {folder}: there are files already; say an empty folder")
    except OSError as error:
        raise WrongInput(f"--patches {folder}: {error.strerror}") from None
    names = []
    for number, patch in enumerate(patches, 1):
        names.append(file_name(number, patch))
        body = yaml.safe_dump(patch.body, sort_keys=False, allow_unicode=True)
        write(str(path / names[-1]), f"# {printable(patch.says)}\n{body}")
    if form == "kustomize":
        kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                "patches": [{"path": each} for each in names]}  # fmt: skip
        write(str(path / "kustomization.yaml"), yaml.safe_dump(kind, sort_keys=False))
