"""One look at a scene: what its pods do, what size they have, and why; looks as plain lines, for
pipes and CI; and what happened in each scene, the demo's last words.
"""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from podscale.cli.demo.scenes import MIB, Scene, api_load, crunch_load, queue_load, shop_load
from podscale.cli.demo.stage import DemoStage
from podscale.core import quantity
from podscale.core.times.rfc3339 import rfc3339

_AUTOSCALERS = {"hpa": "horizontalpodautoscalers", "vpa": "verticalpodautoscalers"}


class PodLook(Struct, frozen=True):
    """One pod, in numbers and in words."""

    name: str
    value: float  # requests/s, or MiB
    share: float  # of what is wanted (hpa) or allowed (vpa), for a bar
    note: str = ""


class SceneLook(Struct, frozen=True):
    """A scene at one moment."""

    scene: str
    at_s: float  # of the demo's time
    load: str
    replicas: int
    pods: tuple[PodLook, ...]
    reason: str
    is_measured: bool  # its metric is served
    load_value: float = 0.0  # of nodes: cores of the largest ballast
    request_mib: tuple[float, ...] = ()  # of memory, by pod
    request_milli: int = 0  # of CPU, the largest
    restarts: int = 0


async def look(stage: DemoStage, scene: Scene) -> SceneLook:
    measured: Any = await stage.get(scene.measured)
    items = (measured or {}).get("items") or []
    _let_size(stage, scene, bool(items))
    told: Any = await stage.get(scene.decision)
    at_s = stage.clock() - stage.began_s
    deployment = stage.objects.get("deployments", scene.namespace, scene.workload)
    replicas = int(deployment["spec"]["replicas"])
    reason = reason_of((told or {}).get("status") or {})
    if scene.name == "worker":
        return _worker(stage, scene, at_s, replicas, reason, bool(items))
    if scene.name == "queue":
        messages = quantity.parse(items[0]["value"]).milli / 1000 if items else 0.0
        pods = tuple(
            PodLook(pod["metadata"]["name"], 0.0, 0.0, (pod.get("status") or {}).get("phase", ""))
            for pod in _held(stage, scene)
        )
        text = f"{queue_load(at_s):.0f} messages/s in, {messages:.0f} waiting"
        return SceneLook("queue", at_s, text, replicas, pods, reason, bool(items), messages)
    if scene.name == "nodes":
        return _nodes((told or {}).get("rows") or (), at_s, replicas, bool(items))
    if scene.name == "both":
        return _both(stage, scene, at_s, replicas, reason, items)
    rates = {
        item["describedObject"]["name"]: quantity.parse(item["value"]).milli / 1000
        for item in items
    }
    pods = tuple(PodLook(name, rate, rate / 12) for name, rate in sorted(rates.items()))
    load = shop_load(at_s)
    return SceneLook("shop", at_s, f"{load:.1f} req/s", replicas, pods, reason, bool(items), load)


def _let_size(stage: DemoStage, scene: Scene, is_measured: bool) -> None:
    # Only now: an HPA before its metric would begin with warnings.
    if not is_measured or scene.autoscaler is None:
        return
    if not stage.objects.find(_AUTOSCALERS[scene.kind], scene.namespace, scene.workload):
        stage.objects.put(scene.autoscaler)
        if scene.beside is not None:
            stage.objects.put(scene.beside)


def _both(
    stage: DemoStage,
    scene: Scene,
    at_s: float,
    replicas: int,
    reason: str,
    items: Sequence[Mapping[str, Any]],
) -> SceneLook:
    used = {
        item["metadata"]["name"]: quantity.parse(each["usage"]["cpu"]).milli
        for item in items
        for each in item["containers"]
        if "cpu" in each["usage"]
    }
    pods, requests = [], []
    for pod in _held(stage, scene):
        name = pod["metadata"]["name"]
        request = quantity.parse(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]).milli
        milli = used.get(name, 0)
        pods.append(PodLook(name, milli, milli / request, f"{milli}m of {request}m"))
        requests.append(request)
    load = f"{api_load(at_s):.1f} req/s, requests {max(requests, default=0)}m"
    return SceneLook(
        "both", at_s, load, replicas, tuple(pods), reason, bool(items),
        request_milli=max(requests, default=0),
    )  # fmt: skip


def _nodes(
    rows: Sequence[Mapping[str, Any]], at_s: float, replicas: int, is_measured: bool
) -> SceneLook:
    pods, reason, held = [], "", 0.0
    for row in rows:
        usage, requested, ballast, all_ = (
            row["cpu"][each] or 0.0 for each in ("usage", "requested", "ballast", "allocatable")
        )
        used = "used"
        if row["reason"] == "StaleUsage":
            used = f"last {used}"
        if not all_:
            pods.append(PodLook(row["name"], usage, 0.0, f"{row['reason']}: no size in its status"))
            continue
        note = f"{usage:4.1f} of {all_:.0f} cores {used}, {requested:.1f} requested"
        pods.append(PodLook(row["name"], usage, usage / all_, f"{note}, ballast {ballast:.1f}"))
        held = max(held, ballast)
        if not reason:  # the fullest
            free = max(all_ - requested - ballast, 0.0)
            reason = (
                f"{row['reason']}: {row['name']} {_use(row, usage, all_)}, its pods "
                f"request {requested:.1f}, ballast {ballast:.1f}: pods of at most {free:.1f} "
                "cores are admitted"
            )
    load = f"the cruncher takes {crunch_load(at_s):.1f} cores, ballast up to {held:.1f}"
    return SceneLook(
        "nodes", at_s, load, replicas, tuple(pods), reason, is_measured, load_value=held
    )


def _use(row: Mapping[str, Any], usage: float, all_: float) -> str:
    amount = f"{usage:.1f} of {all_:.0f} cores"
    if row["reason"] != "StaleUsage":
        return f"uses {amount}"
    if row["measured"] is None:
        return "was never measured"
    return f"used {amount} when it was last measured, at {rfc3339(row['measured'])}"


def _worker(
    stage: DemoStage, scene: Scene, at_s: float, replicas: int, reason: str, is_measured: bool
) -> SceneLook:
    used = {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): usage.memory_bytes
        for pod, usage in stage.cluster.load.pods()
    }
    pods, requests, restarts = [], [], 0
    for pod in _held(stage, scene):
        name = pod["metadata"]["name"]
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        resources = (statuses[0].get("resources") if statuses else None) or {}
        request, limit = (_mib(resources.get(kind)) for kind in ("requests", "limits"))
        again = sum(int(status.get("restartCount", 0)) for status in statuses)
        mib = used.get((scene.namespace, name), 0.0) / MIB
        note = f"{mib:4.0f} of {limit:4.0f} MiB, requests {request:4.0f}, killed {again}x"
        pods.append(PodLook(name, mib, mib / limit if limit else 0.0, note))
        requests.append(request)
        restarts += again
    load = f"leaks 5 MiB/s, killed {restarts}x"
    return SceneLook(
        "worker", at_s, load, replicas, tuple(pods), reason, is_measured,
        request_mib=tuple(requests), restarts=restarts,
    )  # fmt: skip


def _held(stage: DemoStage, scene: Scene) -> list[dict[str, Any]]:
    return [
        pod
        for pod in stage.objects.list("pods", scene.namespace)
        if not pod["metadata"].get("deletionTimestamp")
    ]


def _mib(resources: Mapping[str, Any] | None) -> float:
    text = (resources or {}).get("memory")
    return float(quantity.from_wire(text)) / MIB if text else 0.0


def reason_of(status: Mapping[str, Any]) -> str:
    """Return the decision in one sentence, and its first reason; empty: there is none yet."""
    first, pods = status.get("first_reason"), status.get("pods") or ()
    # Of a sizing decision the pod that is being changed says more.
    acting = [pod for pod in pods if pod.get("decision", {}).get("action") != "none"][:1]
    token = acting[0]["first_reason"] if acting else first
    return f"{status.get('why', '')} ({token})" if first else ""


def summary(looks: Mapping[str, Sequence[SceneLook]]) -> list[str]:
    """Return a line for every scene that was seen."""
    stories = {"shop": _shop_story, "worker": _worker_story, "queue": _queue_story,
               "both": _both_story, "nodes": _nodes_story}  # fmt: skip
    return [stories[name](seen) for name, seen in looks.items() if seen]


def is_measured(looks: Mapping[str, Sequence[SceneLook]]) -> bool:
    """Return whether any scene's metric was ever served."""
    return any(look.is_measured for seen in looks.values() for look in seen)


def _shop_story(seen: Sequence[SceneLook]) -> str:
    loads = [look.load_value for look in seen]
    sizes = [look.replicas for look in seen]
    ups, downs = _steps(sizes)
    told = (
        f"replicas followed between {min(sizes)} and {max(sizes)}, up {_times(ups)} and down "
        f"{_times(downs)}; now: {sizes[-1]}"
        if ups or downs
        else f"replicas stayed at {sizes[-1]}"
    )
    return (
        f"shop: in {seen[-1].at_s:.0f} s the load went from {min(loads):.0f} to {max(loads):.0f} "
        f"requests/s; {told}."
    )


def _worker_story(seen: Sequence[SceneLook]) -> str:
    first = next((look.request_mib for look in seen if look.request_mib), (0.0,))
    last = next((look.request_mib for look in reversed(seen) if look.request_mib), (0.0,))
    killed = max(look.restarts for look in seen)
    resized = max(last) != max(first)
    told = (
        f"its memory request was resized from {max(first):.0f} to {max(last):.0f} MiB"
        if resized
        else f"its memory request stayed {max(first):.0f} MiB"
    )
    killing = f"it was killed for memory {_times(killed)}" if killed else "it was not killed"
    return f"worker: {killing}; {told}."


def _queue_story(seen: Sequence[SceneLook]) -> str:
    sizes = [look.replicas for look in seen]
    zeros = sum(b == 0 and a > 0 for a, b in itertools.pairwise(sizes))
    backs = sum(a == 0 and b > 0 for a, b in itertools.pairwise(sizes))
    waited = max(look.load_value for look in seen)
    told = (
        f"replicas went to zero {_times(zeros)} and came back {_times(backs)}, at most {max(sizes)}"
        if zeros or backs
        else "replicas " + _between(min(sizes), max(sizes))
    )
    return f"queue: up to {waited:.0f} message{'' if round(waited) == 1 else 's'} waited; {told}."


def _both_story(seen: Sequence[SceneLook]) -> str:
    sizes = [look.replicas for look in seen]
    requests = [look.request_milli for look in seen if look.request_milli] or [0]
    request = f"stayed {requests[-1]}m"
    if requests[0] != requests[-1]:
        request = f"went from {requests[0]}m to {requests[-1]}m"
    return f"both: replicas {_between(min(sizes), max(sizes))}, and the CPU request {request}."


def _nodes_story(seen: Sequence[SceneLook]) -> str:
    held = [look.load_value for look in seen]
    return f"nodes: ballast of the fullest held up to {max(held):.1f} cores; now: {held[-1]:.1f}."


def _between(least: int, most: int) -> str:
    return f"stayed at {most}" if least == most else f"went between {least} and {most}"


def _steps(sizes: Sequence[int]) -> tuple[int, int]:
    pairs = list(itertools.pairwise(sizes))
    return sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


_LONGEST = 200  # characters of a plain line


class Lines:
    """Prints as the looks come."""

    def __init__(self, chosen: Scene) -> None:
        self._chosen = chosen
        self._reasons: dict[str, str] = {}
        self._warnings: Sequence[str] = ()
        self._at_s = 0.0
        self.page_url = ""

    def show(self, looks: Mapping[str, Sequence[SceneLook]], warnings: Sequence[str]) -> None:
        """Take all looks so far, by scene, and what is wrong now."""
        self._at_s = latest_s(looks)
        for text in warnings:
            if text not in self._warnings:
                self.say(text)
        self._warnings = warnings
        for name, scene_looks in looks.items():
            if scene_looks and (name == self._chosen.name or _has_changed(scene_looks)):
                # A reason that stays is not said again on every line.
                now = scene_looks[-1]
                is_new = self._reasons.get(name) != now.reason
                self._reasons[name] = now.reason
                _echo(_line(now, with_reason=is_new))

    def say(self, text: str) -> None:
        """Tell something beside the scenes, with the demo's time."""
        _echo(f"podscale demo: {self._at_s:.0f}s {text}", err=True)


def latest_s(looks: Mapping[str, Sequence[SceneLook]]) -> float:
    """Return the time of the newest look, in the demo's seconds."""
    return max((seen[-1].at_s for seen in looks.values() if seen), default=0.0)


def _has_changed(looks: Sequence[SceneLook]) -> bool:
    sizes = [(look.replicas, look.request_mib, look.restarts) for look in looks[-2:]]
    return len(sizes) == 2 and sizes[0] != sizes[1]


def _line(now: SceneLook, *, with_reason: bool) -> str:
    values = " ".join(f"{pod.value:.1f}" for pod in now.pods if pod.value)
    size = f", requests {max(now.request_mib):.0f} MiB" if now.request_mib else ""
    text, of = f"load {now.load}  replicas {now.replicas:2d}{size}", "pod"
    if now.scene == "nodes":
        text, of = now.load, "node"
    text += f"  per {of} [{values}]" if values else ""
    return f"{now.at_s:5.0f}s {now.scene:6}  {text}" + (f"  {now.reason}" if with_reason else "")


def _echo(text: str, *, err: bool = False) -> None:
    for line in textwrap.wrap(text, _LONGEST, subsequent_indent=" " * 8, break_on_hyphens=False):
        click.echo(line, err=err)
