"""A stand-in for Prometheus on a loopback socket, for what a real one cannot be made to do.

It evaluates one shape, ``sum by (...) (metric{namespace..., pod...})`` and the query for its
sample times, over rows given by the test; and it fails as told.
"""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.plan import Demand, KeyLabels, QueryPlan

_MATCHER = r'{label}(=~?)"([^"]*)"'


@dataclass
class Asked:
    """One request as it arrived."""

    verb: str
    path: str
    query: str
    time_s: float
    headers: dict[str, str]
    form: list[tuple[str, str]]
    request: web.Request

    @property
    def is_stamp(self) -> bool:
        return "timestamp(" in self.query

    def values(self, label: str) -> list[str]:
        """The values that the query's matcher on ``label`` lists; none: no matcher."""
        found = re.search(_MATCHER.format(label=label), self.query)
        return found[2].split("|") if found else []


@dataclass
class FakePrometheus:
    """``rows`` maps (namespace, pod) to a value, ``times`` to a sample's time."""

    rows: dict[tuple[str, str], float] = field(default_factory=dict)
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    extra_rows: list[tuple[dict[str, str], float]] = field(default_factory=list)
    react: Callable[[Asked], object] | None = None  # a response or None, may be a coroutine
    asked: list[Asked] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    @property
    def queries(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.is_stamp]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = [*request.query.items(), *(await request.post()).items()]
        fields = dict(form)
        query = fields.get("query") or fields.get("match[]", "")
        asked = Asked(
            request.method,
            request.path,
            query,
            float(fields.get("time", "nan")),
            dict(request.headers),
            form,
            request,
        )
        self.asked.append(asked)
        self.arrived.set()
        if self.react is not None:
            reaction = self.react(asked)
            if hasattr(reaction, "__await__"):
                reaction = await reaction
            if reaction is not None:
                return reaction
        if asked.path.endswith("/series"):
            return web.json_response({"status": "success", "data": []})
        return web.json_response(vector(self.evaluated(asked), asked.time_s))

    def evaluated(self, asked: Asked) -> list[tuple[dict[str, str], float]]:
        namespaces, pods = asked.values("namespace"), asked.values("pod")
        kept = [
            key
            for key in self.rows
            if (not namespaces or key[0] in namespaces) and (not pods or key[1] in pods)
        ]
        labels = re.search(r"by \(([^)]*)\)", asked.query)
        grouped = labels[1].split(",") if labels else ["namespace", "pod"]
        if asked.is_stamp:
            known = [key for key in kept if key in self.times or not self.times]
            found = [(key, self.times.get(key, asked.time_s)) for key in known]
        else:
            found = [(key, self.rows[key]) for key in kept]
        sums: dict[tuple[str, ...], float] = {}
        for (namespace, pod), value in found:
            full = {"namespace": namespace, "pod": pod}
            group = tuple(full.get(label.strip(), "") for label in grouped)
            sums[group] = (
                max(sums.get(group, 0), value) if asked.is_stamp else (sums.get(group, 0) + value)
            )
        rows = [
            ({label.strip(): of for label, of in zip(grouped, group, strict=True) if of}, value)
            for group, value in sums.items()
        ]
        return rows + ([] if asked.is_stamp else self.extra_rows)


def vector(rows, time_s, **more):
    """The body of a vector answer."""
    result = [{"metric": metric, "value": [time_s, repr(value)]} for metric, value in rows]
    return {"status": "success", "data": {"resultType": "vector", "result": result}} | more


def refused(status, error_type, error="as the test wants"):
    """An answer in Prometheus's form of an error."""
    body = {"status": "error", "errorType": error_type, "error": error}
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")


@asynccontextmanager
async def serving(fake, tls=None):
    """Serve until the end of the block; ``fake.url`` says where."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    server = TestServer(app, scheme="https" if tls else "http")
    await server.start_server(ssl=tls)
    fake.url = str(server.make_url("/"))
    try:
        yield fake
    finally:
        await server.close()


def connected(fake, path="", **options):
    """A client of ``fake``, with a deadline that tests can wait for."""
    options = {"deadline_s": 2.0} | options
    return PrometheusClient(PrometheusOptions(url=fake.url.rstrip("/") + path, **options))


def pods_plan(rule="r", template="sum by (pod) (m{<M>})", matchers=(), api="custom"):
    """A plan as the adapter makes it; ``<M>`` stands for the matchers."""
    labels = KeyLabels("namespace", "" if api == "external" else "pod")

    def render(label_matchers, values):
        text = template.replace("<M>", label_matchers)
        for label, value in values.items():
            text = text.replace(f"<{label}>", value)
        return text

    return QueryPlan(api, rule, "m", labels, render, tuple(matchers))


def want(plan, namespace, *names, known=None):
    return Demand(plan, namespace, tuple(sorted(names)), known)
