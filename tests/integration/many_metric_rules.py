"""Relists of the same series by thousands of MetricRules, and by the rules of one file.

As a program it is either the pretend Prometheus (``serve``) or one adapter's lists that read it,
which prints the CPU seconds of a relist, its resident MB and what it has: by ``objects``, by a file
with as many rules (``file``), or by one with a rule for all namespaces each (``few``).
"""

import asyncio
import gc
import http.server
import json
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from adapter.discovery.relist import Relister, RelistOptions
from adapter.metric_rules.objects import StoredMetricRule, compiled
from adapter.rules.config import Config, parse
from adapter.rules.ruleset import Rule, RuleSet, compile_rules
from adapter.sources.source_router import OneSource
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.resource import NAMESPACES, PODS
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.discovery import Mapper
from podscale.process import compose

KINDS = 10  # of rules, the same in each namespace
SERIES_EACH = 100  # of a rule in a namespace
MAPPER = Mapper([PODS, NAMESPACES])
OVERRIDES = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
QUERY = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"
RELISTS = 5


def spec(kind: int, more: str = "") -> dict[str, object]:
    """Return one rule as it is written, in a file and in an object."""
    return {
        "seriesQuery": f'app_{kind}_total{{pod!=""{more}}}',
        "resources": {"overrides": OVERRIDES},
        "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
        "metricsQuery": QUERY,
    }


def entries(kind: int, namespace: int) -> bytes:
    """Return the series of one rule in one namespace, as JSON without brackets."""
    return b",".join(
        json.dumps({
            "__name__": f"app_{kind}_total", "namespace": f"ns-{namespace}",
            "pod": f"app-{kind}-7d9f8c-{index:05}", "container": "app", "job": "pods",
            "instance": f"10.0.{index % 250}.{namespace % 250}:8080",
        }).encode()
        for index in range(SERIES_EACH)
    )  # fmt: skip


def serve(port: int, namespaces: int) -> None:
    """Answer /api/v1/series like a Prometheus that has them all."""
    known = {(k, n): entries(k, n) for k in range(KINDS) for n in range(namespaces)}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            (match,) = parse_qs(urlsplit(self.path).query)["match[]"]
            kind = int(re.findall(r"app_(\d+)_total", match)[0])
            written = re.search(r'namespace=~?"([^"]+)"', match)
            wanted = range(namespaces)
            chosen = [int(each[3:]) for each in written[1].split("|")] if written else wanted
            found = b",".join(known[kind, number] for number in chosen)
            body = b'{"status":"success","data":[' + found + b"]}"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        print("serves", flush=True)
        server.serve_forever()


def objects(namespaces: int) -> Iterator[tuple[str, RuleSet]]:
    """Yield the MetricRules of each namespace, compiled."""
    sources = NamedSources(access={"default": SourceAccess(("*",))})
    for number in range(namespaces):
        namespace = f"ns-{number}"
        found = []
        for kind in range(KINDS):
            meta = ObjectMeta(name=f"rule-{kind}", namespace=namespace, generation=1)
            raw = msgspec.Raw(json.dumps(spec(kind)).encode())
            rule = compiled(StoredMetricRule(meta, raw), MAPPER, sources)
            assert isinstance(rule, Rule)
            found.append(rule)
        yield namespace, RuleSet(Config(), tuple(found))


async def relist(form: str, url: str, namespaces: int) -> dict[str, float]:
    """Return what relists cost and find."""
    compose.relax()
    every = [f',namespace="ns-{number}"' for number in range(namespaces)]
    scopes = {"file": every, "few": [""], "objects": []}[form]
    async with PrometheusClient(PrometheusOptions(url=url)) as client:
        text = json.dumps({"rules": [spec(kind, each) for each in scopes for kind in range(KINDS)]})
        rules = compile_rules(parse(text), MAPPER)
        relister = Relister(OneSource(client), rules, RelistOptions())
        if form == "objects":
            for namespace, own in objects(namespaces):
                await relister.replace(own, namespace)
        spent = []
        await relister.relist()
        gc.collect()
        gc.freeze()  # as a process does once it is ready (podscale.process.compose)
        for _ in range(RELISTS):
            before = cpu_s()
            await relister.relist()
            spent.append(cpu_s() - before)
        within = relister.custom.within
        states = [*relister.custom.states, *(s for own in within.values() for s in own.states)]
        assert all(state.failure is None for state in states)
        return {
            "cpu_s": min(spent),
            "peak_mb": peak_mb(),
            "series": sum(state.series for state in states),
        }


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    # Not ru_maxrss: it begins with what the parent had.
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1e3


if __name__ == "__main__":
    form, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if form == "serve":
        serve(int(where), count)
    else:
        print(json.dumps(asyncio.run(relist(form, where, count))))
