"""``podscale demo``: a small cluster, sized by real decisions, watched from the terminal."""

import asyncio
import itertools
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podscale.cli.cluster import EXIT_FAILED
from podscale.cli.output import note, wants_colour

if TYPE_CHECKING:
    from podscale.cli.demo_stage import Stage

_EVERY_S = 2.0
_HPAS = "horizontalpodautoscalers.autoscaling"
_RATES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/http_requests_per_second"


class Moment:
    """What is seen at one look."""

    def __init__(
        self, at_s: float, load: float, rates: Mapping[str, str], replicas: int, reason: str
    ) -> None:
        self.at_s = at_s
        self.load = load
        self.rates = rates  # pod -> requests/s, read through the aggregated API
        self.replicas = replicas
        self.reason = reason  # the HPA's explanation: first reason, then sentences


@click.command("demo")
@click.option("--duration", default="", metavar="90s", help="End by itself after this long.")
@click.pass_context
def command(ctx: click.Context, duration: str) -> None:
    """See a shop under a daily load being scaled, on this machine, with reasons."""
    from podscale.cli.demo_stage import DemoError
    from podscale.core.duration import DurationError, parse_go

    try:
        limit_s = parse_go(duration) if duration else None
    except DurationError as error:
        raise click.BadParameter(str(error), param_hint="--duration") from None
    try:
        code = asyncio.run(_run(limit_s))
    except KeyboardInterrupt:
        code = 0
    except DemoError as error:
        note(f"podscale demo: {error.message}")
        code = EXIT_FAILED
    ctx.exit(code)


async def _run(limit_s: float | None) -> int:
    from podscale.cli.demo_stage import stage

    note("podscale demo: starting API server, Prometheus, adapter and HPA …")
    async with stage() as running:
        note(_hints(running))
        seen = await _watch(running, limit_s)
        return _summary(seen, running)


def _hints(running: "Stage") -> str:
    podscale = shutil.which("podscale") or str(Path(sys.executable).with_name("podscale"))
    kubectl = f"kubectl --server {running.server.url} -n shop"
    return "\n".join(
        [
            "Try it from another terminal:",
            f"  {kubectl} get hpa,pods",
            f"  {kubectl} top pods",
            f"  {kubectl} get --raw '{_RATES}'",
            f"  {kubectl} get scalingdecisions",
            f"  {podscale} explain hpa/web -n shop --server {running.server.url}",
            "Ctrl-C ends it.",
        ]
    )


async def _watch(running: "Stage", limit_s: float | None) -> list[Moment]:
    import aiohttp

    loop = asyncio.get_running_loop()
    began = loop.time()
    seen: list[Moment] = []
    show = _screen() if sys.stdout.isatty() else _lines()
    async with aiohttp.ClientSession() as session:
        with show as draw:
            while limit_s is None or loop.time() - began < limit_s:
                if trouble := running.ended():
                    note(f"podscale demo: {trouble}")
                    break
                seen.append(await _look(running, session, loop.time() - began))
                draw(seen)
                await asyncio.sleep(_EVERY_S)
    return seen


async def _look(running: "Stage", session: Any, at_s: float) -> Moment:
    from podscale.cli.demo_stage import NAMESPACE, WORKLOAD, autoscaler, requests_per_s

    items: Any = await running.get(session, _RATES)
    told: Any = await running.get(
        session,
        f"/apis/hpa.podscale.io/v1alpha1/namespaces/{NAMESPACE}/scalingdecisions/{WORKLOAD}",
    )
    deployment = running.server.objects.get("deployments", NAMESPACE, WORKLOAD)
    if items and not running.server.objects.find(_HPAS, NAMESPACE, WORKLOAD):
        # Only now: an HPA before its metric would begin with warnings.
        running.server.objects.put(autoscaler())
    rates = {i["describedObject"]["name"]: i["value"] for i in (items or {}).get("items", ())}
    status = (told or {}).get("status", {})
    # The first sentence says how many pods there are, which the view shows anyway.
    told_in_words = " ".join(status.get("sentences", ())[1:])
    reason = f"{status['first_reason']}: {told_in_words}" if status.get("first_reason") else ""
    return Moment(at_s, requests_per_s(at_s), rates, deployment["spec"]["replicas"], reason)


class _lines:  # noqa: N801 - used as a context manager
    """Plain lines, for pipes and CI."""

    def __enter__(self) -> "_lines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, seen: Sequence[Moment]) -> None:
        now = seen[-1]
        rates = " ".join(f"{_rate(value):.1f}" for _, value in sorted(now.rates.items()))
        click.echo(
            f"{now.at_s:5.0f}s  load {now.load:5.1f} req/s  replicas {now.replicas:2d}  "
            f"per pod [{rates}]  {now.reason}"
        )


class _screen:  # noqa: N801 - used as a context manager
    """One screen that changes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(no_color=not wants_colour()), auto_refresh=False)

    def __enter__(self) -> "_screen":
        self._live.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.__exit__(*reason)

    def __call__(self, seen: Sequence[Moment]) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = seen[-1]
        table = Table(title="shop/web: 12 requests/s per pod wanted, 2 to 10 pods", expand=False)
        table.add_column("pod")
        table.add_column("requests/s", justify="right")
        table.add_column("")
        for pod, value in sorted(now.rates.items()):
            table.add_row(pod, f"{_rate(value):.1f}", "█" * round(_rate(value)))
        history = "".join(_BARS[min(m.replicas, 10) * (len(_BARS) - 1) // 10] for m in seen[-70:])
        self._live.update(
            Group(
                Text(f"load {now.load:.0f} requests/s   replicas {now.replicas}"),
                Text(history, style="cyan"),
                table,
                Text(now.reason or "waiting for the first decision …"),
            ),
            refresh=True,
        )


_BARS = " ▁▂▃▄▅▆▇█"


def _rate(text: str) -> float:
    from podscale.core import quantity

    return quantity.parse(text).milli / 1000


def _summary(seen: Sequence[Moment], running: "Stage") -> int:
    if not seen or running.ended():
        return EXIT_FAILED
    sizes = [moment.replicas for moment in seen]
    changes = sum(a != b for a, b in itertools.pairwise(sizes))
    click.echo(
        f"\nIn {seen[-1].at_s:.0f} s the load went from {min(m.load for m in seen):.0f} to "
        f"{max(m.load for m in seen):.0f} requests/s; replicas went from {min(sizes)} to "
        f"{max(sizes)} in {changes} steps, and there are {sizes[-1]} now."
    )
    if not any(moment.rates for moment in seen):
        note("podscale demo: it ended before a metric was served; give it at least 30s")
        return EXIT_FAILED
    return 0
