"""What a replay is given: files of specs, samples and prices; an HPA of a cluster, its rules, and
what Prometheus remembers of both.
"""

import asyncio
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct, structs

from adapter.discovery.relist import Relister, RelistOptions
from adapter.errors import ConfigInvalid
from adapter.rules.ruleset import read_rules
from adapter.sources.source_router import OneSource
from hpa.decide.api.reading import read as read_hpa
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.simulate.workload import LoadHistory
from podscale.cli.cluster import ClusterChoice
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.plan import rules_of
from podscale.cli.evaluation.manifest import WrittenError, place, plain
from podscale.cli.evaluation.observation import EvaluationError, placing, plain_hpa, written_hpa
from podscale.cli.inputs import CommandFailed, WrongInput, read, seconds
from podscale.cli.output import Progress, progress, said
from podscale.cli.prometheus import PrometheusChoice, PrometheusUnanswered
from podscale.core.json_decoder import decode_json
from podscale.core.quantity import QuantityError
from podscale.core.quantity import parse as parse_quantity
from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.range_reader import HistoryReader
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import HPAS, PODS, VPAS
from podscale.kube.client.wire import convert, decode
from podscale.kube.objects.autoscaler import Autoscaler, CrossVersionObjectReference
from podscale.kube.objects.pod import Pod
from podscale.replay import history
from podscale.replay.inputs import ReplayError, TraceInvalid, read_trace
from podscale.replay.vertical import PodUsageHistory, history_of
from vpa.model.amounts import RESOURCES

T = TypeVar("T", bound=msgspec.Struct)


def plain_of_file(file: str) -> dict[str, Any]:
    """Return an HPA as it is written; raises ``WrongInput`` unless it is a valid one."""
    text = read(file)
    try:
        with placing(text):
            found = plain_hpa(text)
            written_hpa(found)
    except EvaluationError as error:
        raise WrongInput(f"{file}{_at(error.line, error.column)}: {error}") from None
    return found


def _at(line: int, column: int) -> str:
    return f":{line}:{column}" if line else ""


def written(of: dict[str, Any]) -> Autoscaler:
    """Return the object; raises ``ReplayError`` for one that an API server refuses."""
    try:
        return written_hpa(of)
    except EvaluationError as error:
        raise ReplayError(str(error).removeprefix("the HPA: ")) from None


def trace_of_file(file: str, scale: float) -> tuple[LoadHistory, list[str]]:
    """Return the load times ``scale``, and notes; raises ``WrongInput``."""
    if not 0.0 < scale < math.inf:  # nor NaN
        raise WrongInput(f"--scale {scale:g}: a finite number above zero is wanted")
    try:
        load, notes = read_trace(read(file))
    except TraceInvalid as error:
        raise WrongInput(f"{file}:{error.line}: {error}") from None
    columns = {name: values * scale for name, values in load.columns.items()}
    return LoadHistory(load.time_s, columns, load.hidden), notes


def converted(file: str, kind: type[T]) -> T:
    """Return the YAML of a file as ``kind``; raises ``WrongInput`` with file and line."""
    text = read(file)
    try:
        return msgspec.convert(plain(text), kind)
    except WrittenError as error:
        raise WrongInput(f"{file}{_at(error.line, error.column)}: {error}") from None
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_encode_fields__)
        raise WrongInput(
            f"{file}{_at(*place(text, str(error)))}: {error}; known: {known}"
        ) from None


def requests_of(words: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Return container → resource → milli-units of ``[CONTAINER/]cpu=500m``."""
    found: dict[str, dict[str, int]] = {}
    for word in words:
        of, equals, amount = word.partition("=")
        container, slash, resource = of.rpartition("/")
        try:
            if not equals or not resource or (slash and not container):
                raise QuantityError(word, "RESOURCE=QUANTITY or CONTAINER/RESOURCE=QUANTITY")
            milli = parse_quantity(amount).milli_int64
        except QuantityError as error:
            raise WrongInput(f"--request {word}: {error}") from None
        if milli <= 0:
            raise WrongInput(f"--request {word}: above zero is wanted")
        found.setdefault(container or "app", {})[resource] = milli
    return found


_DEADLINE_S = 30.0  # of a query


class ReplayOptions(Struct, frozen=True):
    """The call, as it was written."""

    what: str | None = None
    since: str = "7d"
    step: str = "15s"
    max_samples: int = 50_000_000
    prometheus: PrometheusChoice = PrometheusChoice()
    config: str = ""
    config_map: str = ""
    trace: str = ""
    hpa_files: tuple[str, ...] = ()
    scale: float = 1.0
    ready_after: str = ""
    metric_age: str = "15s"
    nodes_after: str = "0s"
    room: int | None = None
    requests: tuple[str, ...] = ()
    pod_capacity: str = ""
    replicas: int | None = None
    price: str = ""
    sweeps: tuple[str, ...] = ()
    at_most_unserved: str = ""
    is_forecast: bool = False
    html: str = ""
    workers: int | None = None  # None: as many as there are cores
    dask: str = ""
    percentiles: str = "0.9"
    margins: str = "0.15"
    half_lives: str = "24h"


class Subject(Struct, frozen=True):
    """What is replayed, wherever it comes from."""

    specs: list[tuple[str, dict[str, Any]]]  # today's first
    load: LoadHistory
    requests: dict[str, dict[str, int]]
    ready_after_s: tuple[float, ...]
    notes: Sequence[str]


def recorded(cluster: ClusterChoice, name: str, options: ReplayOptions) -> Subject:
    """Return the HPA; raises ``CommandFailed`` and ``ReplayError``."""

    async def read() -> Subject:
        async with RecordedCluster(cluster, options) as found:
            plain = await found.cluster.hpa(cluster.namespace, name)
            return await found.past({**plain}, progress())

    with errors_in_words(options):
        return asyncio.run(read())


def recorded_usage(
    cluster: ClusterChoice, name: str, options: ReplayOptions
) -> tuple[dict[str, Any], PodUsageHistory, dict[str, dict[str, int]]]:
    """Return a VPA, what its pods used and what they request; raises as ``recorded`` does."""

    async def read() -> tuple[dict[str, Any], PodUsageHistory, dict[str, dict[str, int]]]:
        async with RecordedCluster(cluster, options) as found:
            answer = await found.cluster.read(VPAS.path(cluster.namespace, name))
            plain: dict[str, Any] = decode_json(answer.body)
            return plain, *await found.usage(plain, progress())

    with errors_in_words(options):
        return asyncio.run(read())


def all_recorded(
    cluster: ClusterChoice, options: ReplayOptions
) -> Iterator[tuple[str, Subject | ReplayError]]:
    """Yield the HPAs of the namespaces chosen, by namespace and name, each read when it is wanted.

    Raises as ``recorded`` does where that concerns all of them.
    """
    path = HPAS.path(cluster.only_namespace)
    drawn = progress()
    with asyncio.Runner() as runner, errors_in_words(options):
        found = RecordedCluster(cluster, options)
        runner.run(found.__aenter__())
        try:
            plain = runner.run(_listed(found.cluster, path))
            for number, each in enumerate(plain, 1):
                name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
                try:
                    with errors_in_words(options):
                        past = runner.run(found.past(each, lambda *_: None))
                except (ReplayError, CommandFailed) as error:
                    yield name, ReplayError(str(error))
                else:
                    yield name, past
                drawn(number, len(plain), name)
        finally:
            runner.run(found.__aexit__())


async def _listed(cluster: DoctorCluster, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for page in cluster.listed(path, "HPAs"):
        found += [decode(each, dict[str, Any]) for each in page]
    if not found and cluster.notes:
        raise CommandFailed(cluster.notes[-1])
    typed = {"apiVersion": f"{HPAS.group}/{HPAS.version}", "kind": "HorizontalPodAutoscaler"}
    found = [typed | each for each in found]  # items of a list do not say it
    return sorted(found, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))


@contextmanager
def errors_in_words(options: ReplayOptions) -> Iterator[None]:
    """Raise as ``CommandFailed`` what a cluster or Prometheus comes back with."""
    try:
        yield
    except QueryError as error:
        raise PrometheusUnanswered(options.prometheus.url, error) from None
    except (KubeError, OSError) as error:
        raise CommandFailed(said(error)) from None


class RecordedCluster:
    """A cluster, its rules and its Prometheus, as long as it is open."""

    cluster: DoctorCluster

    def __init__(self, choice: ClusterChoice, options: ReplayOptions) -> None:
        self._choice = choice
        self._options = options
        self._requests = requests_of(options.requests)
        self._open = AsyncExitStack()
        self._reader: HistoryReader | None = None

    async def __aenter__(self) -> Self:
        """Read the rules and what metrics there are."""
        options = self._options
        since_s, step_s = seconds("--since", options.since), seconds("--step", options.step)
        source = options.prometheus.options(_DEADLINE_S)
        if source is None:
            raise WrongInput("specify --prometheus-url URL or --trace FILE")
        self._source = source
        async with AsyncExitStack() as opening:
            api = await opening.enter_async_context(self._choice.connect("replay"))
            self.cluster = DoctorCluster(api)
            await self.cluster.learn_resources()
            text, _ = await rules_of(options.config, options.config_map, self.cluster)
            try:
                _, self._rules = read_rules(text.text, text.file, self.cluster.mapper)
            except ConfigInvalid as error:
                raise ReplayError(f"the rules: {error}") from None
            async with PrometheusClient(source) as client:
                end_s = await client.clock_s()
                # Series that have ended since count, too: --since is how far the list looks back.
                relist = RelistOptions(interval_s=since_s)
                self._lister = Relister(OneSource(client), self._rules, relist, clock=lambda: end_s)
                await self._lister.relist()
            self._open = opening.pop_all()
        start_s, step = float(int(end_s - since_s)), max(1, round(step_s))
        self._window = history.HistoryWindow(start_s, float(int(end_s)), step, options.max_samples)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close connections and end the child that reads."""
        await self._open.aclose()

    async def past(self, plain: dict[str, Any], told: Progress) -> Subject:
        """Return an object of the cluster with its past."""
        plain.pop("status", None)
        hpa = structs.replace(read_hpa(written(plain)), namespace=plain["metadata"]["namespace"])
        template = await _template(self.cluster, hpa)
        queries = self._queries(hpa)
        if self._reader is None:
            self._reader = await self._open.enter_async_context(HistoryReader(self._source))
        reader, self._reader = self._reader, None  # one that was left early is of no use
        past = await history.PastReader(reader, self._window, told).past(hpa, queries)
        self._reader = reader
        requests = self._requests or history.requests_of_pods(template)
        ready_after_s = past.ready_after_s or await self._ready_after(hpa)
        return Subject([("today", plain)], past.load, requests, ready_after_s, past.notes)

    async def _ready_after(self, hpa: HPA) -> tuple[float, ...]:
        # The usual time from creation to Ready of the pods that there are; empty: not known.
        found: list[float] = []
        async for page in self.cluster.listed(PODS.path(hpa.namespace), "pods"):
            for pod in (decode(each, Pod) for each in page):
                created_s = pod.metadata.creation_timestamp or 0.0
                if re.fullmatch(history.pods_of(hpa), pod.metadata.name):
                    found += [(each.last_transition_time or 0.0) - created_s
                              for each in pod.status.conditions
                              if (each.type, each.status) == ("Ready", "True")]  # fmt: skip
        return (statistics.median(found),) if found else ()

    async def usage(
        self, plain: Mapping[str, Any], told: Progress
    ) -> tuple[PodUsageHistory, dict[str, dict[str, int]]]:
        """Return what the pods behind a VPA used, and what its target requests today."""
        target = plain["spec"].get("targetRef") or {}
        if not (target.get("kind") and target.get("name")):
            raise ReplayError(f"VPA {plain['metadata']['name']} has no target, and so no pods")
        reference = convert(target, CrossVersionObjectReference)
        behind = HPA(
            plain["metadata"]["namespace"], plain["metadata"]["name"], reference, 1,
            tuple(MetricSpec("Resource", each) for each in RESOURCES),
        )  # fmt: skip
        queries = self._queries(behind)
        async with HistoryReader(self._source) as reader:
            past = history.PastReader(reader, self._window, told)
            found = {each.key: await past.by_pod(each) for each in queries}
        template = await _template(self.cluster, behind)
        return history_of(self._window.grid, found), history.requests_of_pods(template)

    def _queries(self, hpa: HPA) -> list[history.LoadQuery]:
        lister = self._lister
        resource_of = partial(history.resource_of, self.cluster.mapper)
        return history.load_queries(hpa, self._rules, lister.custom, lister.external, resource_of)


async def _template(cluster: DoctorCluster, hpa: HPA) -> Mapping[str, object]:
    # The spec of the target's pods; of a kind of its own, which has none there, nothing.
    try:
        path = cluster.resource_of(hpa.target).path(hpa.namespace, hpa.target.name)
        return dict((await cluster.get(path, dict[str, Any]))["spec"]["template"]["spec"])
    except (KeyError, TypeError):
        return {}
