"""The metrics APIs of the play: answers by script, and remembers each answer word for word.

Stands behind the aggregator in the adapter's place. What it says depends on the seed, the
time and the pods that live; whoever asks, and when, is in ``told``. Of the namespaces in
``races`` it tells no troubles, but a load that depends on the time since their start alone.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from podscale.core.selectors.selector import parse
from tests.cluster.aggregated import AggregatedServer, send, user_of
from tests.cluster.beside_cast import CONTAINERS, TOTAL_OVER_PODS
from tests.cluster.beside_watch import Watch
from tests.cluster.pki import Authority, KeyPair
from tests.cluster.plane import Plane

GROUPS = (
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
)
_SCENE_S = 14.0  # the load of a workload keeps its level for so long
_TROUBLE_S = 8.0
_FINE = 1.0  # no trouble
# The draws that make a request fail, or find nothing ...
_FIRE, _UNKNOWN, _EMPTY = (0.0, 0.03), (0.03, 0.05), (0.05, 0.065)
# ... and those that make an answer odd.
_BELOW_ZERO, _NO_NUMBER, _TWICE, _NULL_TIME = (0.07, 0.08), (0.09, 0.1), (0.1, 0.15), (0.15, 0.21)
_MEMORY = 32 * 1024 * 1024


@dataclass(frozen=True)
class Told:
    """One answer."""

    began: float
    ended: float
    user: str
    path: str  # unescaped, without query
    query: tuple[tuple[str, str], ...]
    status: int
    body: bytes


@dataclass(frozen=True)
class Race:
    """A namespace whose loads are those of every other race at the same age."""

    began: float
    pods: Callable[[], Mapping[str, Any]]


class Stage(AggregatedServer):
    """The metrics APIs of one namespace's play."""

    def __init__(
        self,
        serving: KeyPair,
        front_proxy_ca: Authority,
        seed: int,
        pods: Callable[[], Mapping[str, Any]],
    ) -> None:
        """``pods``: the living pods by name."""
        super().__init__(serving, front_proxy_ca)
        self.told: list[Told] = []
        self.races: dict[str, Race] = {}
        self._seed, self._pods = seed, pods
        self._began = time.time()

    @classmethod
    @contextlib.contextmanager
    def raised(
        cls, plane: Plane, namespace: str, directory: Path, pods: Watch, seed: int = 0
    ) -> Iterator[Self]:
        """Run a stage behind the aggregator of ``plane``, under a Service in ``namespace``."""
        authority = Authority(directory, "stage-ca")
        serving = authority.issue("stage", hosts=(f"stage.{namespace}.svc",))
        with cls(serving, plane.front_proxy_ca, seed, lambda: pods.live) as stage:
            plane.expose(namespace, "stage", stage.port)
            for group, version in GROUPS:
                plane.register_api(
                    group, version, namespace=namespace, service="stage", port=stage.port,
                    ca_pem=authority.cert_pem,
                )  # fmt: skip
            for group, version in GROUPS:
                plane.wait_available(group, version)
            yield stage

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        began = time.time()
        parts = urlsplit(request.path)
        path, query = unquote(parts.path), tuple(parse_qsl(parts.query))
        status, answer = self.answer(path, dict(query), began)
        raw = json.dumps(answer).encode()
        send(request, status, raw)
        user = user_of(request)
        self.told.append(Told(began, time.time(), user, path, query, status, raw))

    def answer(self, path: str, query: Mapping[str, str], now: float) -> tuple[int, Any]:
        """Return status and body for one request."""
        words = path.strip("/").split("/")
        if words[:1] != ["apis"] or len(words) < 3:
            return 404, _status(404, "NotFound", "no such path")
        group, version, rest = words[1], words[2], words[3:]
        if not rest:
            return 200, _discovery(group, version)
        app = app_of(rest, query)
        race = self.races.get(rest[1])
        if race is not None:
            items = self._items(group, rest, app, query, _FINE, race.began, now)
            return 200, _listed(group, version, items)
        trouble = self.trouble(app, now)
        if _is(trouble, _FIRE):
            return 500, _status(500, "InternalError", "the source of the metrics is on fire")
        if _is(trouble, _UNKNOWN):
            return 404, _status(404, "NotFound", f"no metric of {app} is known")
        items = []
        if not _is(trouble, _EMPTY):
            items = self._items(group, rest, app, query, trouble, self._began, now)
        return 200, _listed(group, version, items)

    def trouble(self, app: str, now: float) -> float:
        """Return the draw of what is wrong with the metrics of a workload."""
        return self._draw("trouble", app, now - self._began, _TROUBLE_S).random()

    def load(self, app: str, age_s: float) -> float:
        """Return how far a workload's load is from its targets; 1.0 is on them."""
        draw = self._draw("scene", app, age_s, _SCENE_S)
        return draw.choice((0.0, 0.3, 0.6, 0.8, 0.95, 1.0, 1.05, 1.1, 1.3, 1.7, 2.2, 3.0))

    def _items(
        self,
        group: str,
        rest: list[str],
        app: str,
        query: Mapping[str, str],
        trouble: float,
        began: float,
        now: float,
    ) -> list[dict[str, Any]]:
        load = self.load(app, now - began)
        taken = None if _is(trouble, _NULL_TIME) else _time(now - 4)
        is_number = not _is(trouble, _NO_NUMBER)
        if group == "external.metrics.k8s.io":
            # Below zero under a Value only: of a negative sum's AverageValue upstream makes
            # 2147483647 replicas, which we deliberately do not (hpa.md 1.11).
            is_below = _is(trouble, _BELOW_ZERO) and app.startswith("external-value")
            total = load * 10 * TOTAL_OVER_PODS * (-1 if is_below else 1)
            shares = self._draw("shares", app, now - began, _SCENE_S).choice(((1.0,), (0.25, 0.75)))
            return [
                {
                    "metricName": rest[-1],
                    "metricLabels": {"part": str(number)},
                    "timestamp": taken,
                    "value": f"{round(total * share * 1000)}m" if is_number else "NaN",
                }
                for number, share in enumerate(shares)
            ]
        if group == "custom.metrics.k8s.io" and rest[2] != "pods":
            kind, name = ("Namespace", rest[1]) if rest[2] == "metrics" else ("Deployment", rest[3])
            value = f"{round(load * 10 * TOTAL_OVER_PODS * 1000)}m" if is_number else "NaN"
            one = _value(kind, name, rest[-1], value, taken)
            return [one, one] if _is(trouble, _TWICE) else [one]
        return self._of_pods(group, rest, app, query, trouble, load, now)

    def _of_pods(
        self,
        group: str,
        rest: list[str],
        app: str,
        query: Mapping[str, str],
        trouble: float,
        load: float,
        now: float,
    ) -> list[dict[str, Any]]:
        found = []
        draw = self._draw("pods", app, now - self._began, _TROUBLE_S)
        race = self.races.get(rest[1])
        living = race.pods() if race else self._pods()
        selector = parse(query.get("labelSelector", ""))
        names = sorted(
            name
            for name, pod in list(living.items())
            if selector.matches(pod["metadata"].get("labels", {}))
            and pod["status"].get("phase") in ("Running", "Failed", "Succeeded")
        )
        if race:
            # What there is to be done is shared among the pods.
            load = load * TOTAL_OVER_PODS / max(len(names), 1)
        elif draw.random() < 0.05:
            names.append("ghost")
        for name in names:
            own = load if race else Random(f"{self._seed}/{name}").uniform(0.8, 1.2) * load
            if not race and draw.random() < 0.06:
                continue
            taken = None if _is(trouble, _NULL_TIME) else _time(now - 5)
            is_number = not (_is(trouble, _NO_NUMBER) and name == names[-1])
            if group == "custom.metrics.k8s.io":
                value = f"{round(own * 1000)}m" if is_number else "NaN"
                found.append(_value("Pod", name, rest[-1], value, taken))
                continue
            cpu = f"{round(own * 50e6)}n" if is_number else "NaN"
            usage = {"cpu": cpu, "memory": f"{round(own * _MEMORY)}"}
            if not race and draw.random() < 0.03:
                usage.pop("cpu")
            found.append(
                {
                    "metadata": {"name": name, "namespace": rest[1]},
                    "timestamp": taken,
                    "window": "15s",
                    "containers": [{"name": each, "usage": usage} for each in CONTAINERS],
                }
            )
        if _is(trouble, _TWICE):
            # The same pods again, with each other's values: the later one counts.
            found += [
                {**first, **{key: second[key] for key in ("value", "containers") if key in second}}
                for first, second in zip(found, reversed(found), strict=True)
            ]
        return found

    def _draw(self, what: str, app: str, age_s: float, span_s: float) -> Random:
        # Each workload changes at moments of its own.
        shift = Random(f"{self._seed}/{app}").uniform(0, span_s)
        return Random(f"{self._seed}/{what}/{app}/{int((age_s + shift) / span_s)}")


class Dial(Stage):
    """A stage without troubles, on which every load is what ``level`` says."""

    level = 1.0

    def trouble(self, app: str, now: float) -> float:
        """Return that all is well."""
        return _FINE

    def load(self, app: str, age_s: float) -> float:
        """Return the level."""
        return self.level


def _is(trouble: float, span: tuple[float, float]) -> bool:
    return span[0] <= trouble < span[1]


def app_of(rest: Sequence[str], query: Mapping[str, str]) -> str:
    """Return what the answer depends on: the pods' selector, or the name in the metric's."""
    if "labelSelector" in query and rest[2] == "pods":
        return query["labelSelector"]
    if rest[2].startswith(("queue-", "depth-")):
        return rest[2].partition("-")[2]
    return rest[-1].partition("-")[2] if rest[2] == "metrics" else rest[3]


def _listed(group: str, version: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    kind = {
        "metrics.k8s.io": "PodMetricsList",
        "custom.metrics.k8s.io": "MetricValueList",
        "external.metrics.k8s.io": "ExternalMetricValueList",
    }[group]
    return {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items}


def _value(kind: str, name: str, metric: str, value: str, taken: str | None) -> dict[str, Any]:
    return {
        "describedObject": {"kind": kind, "name": name, "apiVersion": "v1"},
        "metric": {"name": metric},
        "timestamp": taken,
        "windowSeconds": 15,
        "value": value,
    }


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _discovery(group: str, version: str) -> dict[str, Any]:
    resources = []
    if group == "metrics.k8s.io":
        resources = [{"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics",
                      "verbs": ["get", "list"]}]  # fmt: skip
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": resources,
    }
