"""Cases A1, A2 and A7: default rules against given series, and usage against given samples."""

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from adapter.discovery import mapping
from adapter.discovery.registry import is_namespaced
from adapter.discovery.relist import Relister, RelistOptions
from adapter.queries.inquiry import ask
from adapter.queries.plans import Plans
from adapter.queries.usage import Amounts, UsageByRules
from adapter.rules import config_gen
from adapter.rules.config import Config
from adapter.rules.config import parse as parse_config
from adapter.rules.ruleset import RuleSet, compile_rules
from podscale.core.selectors import selector
from podscale.core.times import duration
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient, SeriesAnswer
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.kube.discovery import Mapper
from tests.conformance import adapter_cases
from tests.conformance import adapter_pure as pure
from tests.conformance.adapter_world import ScriptedPrometheus


class GivenSeries:
    """A ``Lister`` that answers from a table and notes what it is asked."""

    def __init__(self, series: Mapping[str, list[Any]]) -> None:
        self._series = series
        self.asked: list[tuple[str, float]] = []

    async def series(
        self, match: str, start_s: float, _source: str = "", _wanted: object = None
    ) -> SeriesAnswer:
        """Return names and label names."""
        self.asked.append((match, start_s))
        found: dict[str, set[frozenset[str]]] = {}
        for name, labels in self._series.get(match, []):
            found.setdefault(name, set()).add(frozenset(labels))
        names = {name: frozenset(shapes) for name, shapes in found.items()}
        return SeriesAnswer(names, sum(map(len, found.values())))


def extensions_mapper() -> Mapper:
    """Return the RESTMapper of A1 and A2."""
    (kinds,) = adapter_cases.rows("A1")
    return Mapper(
        adapter_cases.resource(version, kind, scope == "namespaced")
        for version, kind, scope in kinds
    )


def default_rules(rate: str, prefix: str, mapper: Mapper) -> RuleSet:
    """Return the compiled default rules."""
    return compile_rules(parse_config(config_gen.default_yaml(rate, prefix)), mapper)


def listed(relister: Relister) -> set[tuple[str, bool, str]]:
    """Return what is listed: resource, namespaced, metric."""
    return {(key, is_namespaced(key), metric) for key, metric in relister.custom.sources}


def first_case() -> tuple[Relister, GivenSeries]:
    """Return the adapter of A1 before its first relist, and its Prometheus."""
    lister = GivenSeries(dict(adapter_cases.rows("A1-2")))
    rules = default_rules("1m", "", extensions_mapper())
    return Relister(lister, rules, RelistOptions(interval_s=2.0, max_age_s=2.0)), lister


def second_case() -> tuple[Relister, Mapper]:
    """Return the adapter of A2; every rule is given its own series, as upstream's test does."""
    mapper = extensions_mapper()
    compiled = default_rules("1m", "kube_", mapper)
    series: dict[str, list[Any]] = {}
    for number, found in adapter_cases.rows("A2"):
        series.setdefault(compiled.custom[number - 1].series_query, []).extend(found)
    return Relister(GivenSeries(series), compiled, RelistOptions()), mapper


def query(relister: Relister, mapper: Mapper, row: list[Any]) -> str:
    """Return the PromQL for a row of A2-2."""
    _, key, _, metric, namespace, names, metric_selector, _ = row
    found = mapping.resolve(mapper, *mapping.split(key))
    assert found is not None
    source = relister.custom.find(found.group_resource, metric)
    assert source is not None
    wanted = selector.parse(metric_selector or "")
    return pure.custom(
        source.rule.query, source.series, found.group_resource, namespace, names, wanted
    )


class ExactPrometheus(ScriptedPrometheus):
    """Answers given queries; the order of names in an alternation does not matter."""

    def __init__(self, results: Mapping[str, list[dict[str, Any]]]) -> None:
        super().__init__([], [])
        self._results = {_sorted(text): samples for text, samples in results.items()}
        self.unknown: list[str] = []

    def raw(self, query: str) -> Any:
        """Return the samples of a query."""
        samples = self._results.get(_sorted(query))
        if samples is None:
            self.unknown.append(query)
            return []
        hidden = ("value", "ts_ms")
        return [
            [
                {k: v for k, v in sample.items() if k not in hidden},
                str(sample["value"]),
                sample["ts_ms"] / 1000,
            ]
            for sample in samples
        ]


def _sorted(text: str) -> str:
    return re.sub(
        r'"([^"]*\|[^"]*)"', lambda m: '"{}"'.format("|".join(sorted(m[1].split("|")))), text
    )


async def measured(row: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what the adapter measures for a row of A7, and queries that it did not expect."""
    mapper = Mapper([*adapter_cases.served_resources()])
    config: Config = config_gen.default_config("1m", "")
    text = config_gen.default_yaml("1m", "")
    rules = compile_rules(parse_config(text), mapper)
    assert rules.config == config
    prometheus = ExactPrometheus(row["results"])
    runner = web.AppRunner(prometheus.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    options = PrometheusOptions(url=f"http://{host}:{port}")
    feed_options = FeedOptions(is_coalescing=False, with_sample_timestamps=False)
    usage = UsageByRules(lambda: rules.resource, None, Plans())  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    try:
        async with PrometheusClient(options) as client, Feed(client, feed_options) as feed:
            if "nodes" in row:
                (nodes,) = await ask(feed, [usage.nodes(row["nodes"])])
                assert isinstance(nodes, dict)
                found = {name: {"": amounts} for name, amounts in nodes.items()}
            else:
                namespaces: dict[str, list[str]] = {}
                for pod in row["pods"]:
                    namespace, _, name = pod.partition("/")
                    namespaces.setdefault(namespace, []).append(name)
                for namespace, names in namespaces.items():
                    (pods,) = await ask(feed, [usage.pods(namespace, names, None)])
                    assert isinstance(pods, dict)
                    found |= {f"{namespace}/{name}": parts for name, parts in pods.items()}
    finally:
        await runner.cleanup()
    assert rules.resource is not None
    window_s = rules.resource.window_s
    return {name: _shown(parts, window_s) for name, parts in found.items()}, prometheus.unknown


def _shown(parts: Mapping[str, Amounts], window_s: float) -> dict[str, Any]:
    times = [a.time_s for a in parts.values() if a.time_s is not None]
    return {
        "ts_ms": round(min(times) * 1000),
        "window_s": window_s,
        "containers": {
            name: [a and a / 1000 for a in (p.cpu_milli, p.memory_milli)]
            for name, p in parts.items()
        },
    }


def expected(row: dict[str, Any]) -> dict[str, Any]:
    """Return what section 12 makes of a row of A7: what is NaN, negative or absent is lacking.

    Where nothing is, this is the row itself.
    """
    sampled, times = _sampled(row)
    made = {}
    for one in row["expect"]:
        name = one.get("pod") or one["node"]
        parts = one.get("containers") or {"": one["usage"]}
        window_s = duration.parse_prometheus(one["window"])
        made[name] = {"ts_ms": one["ts_ms"], "window_s": window_s, "containers": parts}
    for name, parts in sampled.items():
        if not any(None in amounts for amounts in parts.values()):
            continue
        theirs = made.pop(name, {"window_s": 60.0, "containers": {}})
        kept = {
            part: [
                ours if ours is None else said
                for ours, said in zip(amounts, theirs["containers"].get(part, amounts), strict=True)
            ]
            for part, amounts in parts.items()
            if amounts != [None, None]
        }
        if kept:
            made[name] = {**theirs, "ts_ms": min(times[name]), "containers": kept}
    return made


_Sampled = dict[str, dict[str, list[float | None]]]


def _sampled(row: dict[str, Any]) -> tuple[_Sampled, dict[str, list[int]]]:
    # Of a container the last sample counts, of a node the first.
    is_node = "nodes" in row
    found: _Sampled = {}
    times: dict[str, list[int]] = {}
    for text, samples in row["results"].items():
        place = 0 if "cpu" in text else 1
        for sample in reversed(samples) if is_node else samples:
            name = sample["instance"] if is_node else f"{sample['namespace']}/{sample['pod']}"
            if name not in row["nodes" if is_node else "pods"]:
                continue
            parts = found.setdefault(name, {})
            amounts = parts.setdefault("" if is_node else sample["container"], [None, None])
            value = float(sample["value"])
            amounts[place] = value if 0 <= value < 2**63 / 1000 else None
            if amounts[place] is not None:
                times.setdefault(name, []).append(sample["ts_ms"])
    return found, times
