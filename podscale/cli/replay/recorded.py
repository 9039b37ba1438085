"""An HPA of a cluster, its rules, and what Prometheus remembers of both."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from adapter.discovery.relist import Relister, RelistOptions
from adapter.errors import ConfigInvalid
from adapter.rules.ruleset import read_rules
from adapter.sources.open_sources import OneSource
from hpa.decide.api.reading import read as read_hpa
from hpa.decide.api.spec import HPA, MetricObject
from podscale.cli.cluster import ClusterChoice
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.cli.doctor.command import rules_of
from podscale.cli.doctor.given import Given, WrongUsage, prometheus
from podscale.cli.output import progress, said
from podscale.cli.replay import files
from podscale.cli.replay.files import WrongInput
from podscale.feed.errors import QueryError
from podscale.feed.history import HistoryReader
from podscale.feed.http.client import PrometheusClient
from podscale.kube.client.errors import KubeError, NoMatch
from podscale.replay.errors import ReplayError
from podscale.replay.history import HistoryWindow, PastReader, RecordedPast, requests_of_pods
from podscale.replay.queries import load_queries

if TYPE_CHECKING:
    from podscale.feed.options import PrometheusOptions


class RecordedHpa(Struct, frozen=True):
    """One object of the cluster and its past."""

    plain: dict[str, Any]
    past: RecordedPast
    requests: dict[str, dict[str, int]]  # container → resource → milli-units


class PastOptions(Struct, frozen=True):
    """Where the past is, and how much of it."""

    since_s: float
    step_s: int
    most_samples: int
    config: str = ""
    config_map: str = ""
    prometheus_url: str = ""
    prometheus_header: tuple[str, ...] = ()
    prometheus_token_file: str = ""
    prometheus_ca_file: str = ""


def recorded(cluster: ClusterChoice, name: str, options: PastOptions) -> RecordedHpa:
    """Return the HPA; raises ``WrongInput`` and ``ReplayError``."""
    given = Given(
        config=options.config, config_map=options.config_map, timeout=30.0,
        prometheus_url=options.prometheus_url, prometheus_header=options.prometheus_header,
        prometheus_token_file=options.prometheus_token_file,
        prometheus_ca_file=options.prometheus_ca_file,
    )  # fmt: skip
    try:
        source = prometheus(given)
        if source is None:
            raise WrongInput("say where the history is: --prometheus-url URL (or --trace FILE)")
        return asyncio.run(_recorded(cluster, name, options, given, source))
    except WrongUsage as error:
        raise WrongInput(str(error)) from None
    except (ClusterFailed, KubeError, QueryError, OSError) as error:
        raise ReplayError(said(error)) from None


async def _recorded(
    choice: ClusterChoice,
    name: str,
    options: PastOptions,
    given: Given,
    source: "PrometheusOptions",
) -> RecordedHpa:
    async with choice.connect("replay") as api:
        cluster = DoctorCluster(api)
        await cluster.learn_resources()
        plain = dict(await cluster.hpa(choice.namespace, name))
        plain.pop("status", None)
        hpa = structs.replace(read_hpa(files.written(plain)), namespace=choice.namespace)
        text, _ = await rules_of(given, cluster)
        try:
            _, rules = read_rules(text.text, text.file, cluster.mapper)
        except ConfigInvalid as error:
            raise ReplayError(f"the rules: {error}") from None
        template = await _template(cluster, hpa)
        async with PrometheusClient(source) as client:
            end_s = await client.clock_s()
            # Series that have ended since count, too: --since is how far the list looks back.
            lister = Relister(
                OneSource(client),
                rules,
                RelistOptions(interval_s=options.since_s),
                clock=lambda: end_s,
            )
            await lister.relist()

        def resource_of(described: MetricObject) -> str:
            group = described.api_version.rpartition("/")[0]
            try:
                return cluster.mapper.for_kind(described.kind, group)[0].group_resource
            except NoMatch as error:
                raise ReplayError(f"the object of a metric: {error}") from None

        queries = load_queries(hpa, rules, lister.custom, lister.external, resource_of)
    start_s = float(int(end_s - options.since_s))
    window = HistoryWindow(start_s, float(int(end_s)), options.step_s, options.most_samples)
    async with HistoryReader(source) as reader:
        past = await PastReader(reader, window, progress()).past(hpa, queries)
    return RecordedHpa(plain, past, requests_of_pods(template))


async def _template(cluster: DoctorCluster, hpa: HPA) -> Mapping[str, object]:
    # The spec of the target's pods; of a kind of its own, which has none there, nothing.
    target = hpa.target
    try:
        found: Any = await cluster.target(
            hpa.namespace, target.kind, target.api_version, target.name
        )
        return dict(found["spec"]["template"]["spec"])
    except (KeyError, TypeError):
        return {}
