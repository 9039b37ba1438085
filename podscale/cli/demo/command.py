"""``podscale demo``: a small cluster, sized by real decisions, watched from the terminal."""

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import EXIT_FAILED
from podscale.cli.output import note

if TYPE_CHECKING:
    from podscale.cli.demo.look import Lines, SceneLook
    from podscale.cli.demo.scenes import Scene
    from podscale.cli.demo.screen import DemoApp
    from podscale.cli.demo.stage import DemoStage

    View = DemoApp | Lines

_EVERY_S = 2.0  # between two looks, in the demo's seconds
_LEAST_S = 0.4  # and in real ones
_LONGEST = 160  # characters of a command that is shown on one line
_SLOWEST, _FASTEST = 0.1, 60.0


@click.command("demo")
@click.option("--duration", default="", metavar="90s", help="End by itself after this long.")
@click.option(
    "--scene",
    "chosen",
    type=click.Choice(["shop", "worker", "queue", "both", "nodes"]),
    default="shop",
    show_default=True,
    help="Which of the five stories to show; all of them run.",
)
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="How fast the clock runs; other than 1 takes the stand-in for Prometheus.",
)
@click.pass_context
def command(ctx: click.Context, duration: str, chosen: str, speed: float) -> None:
    """See a small cluster being sized, on this machine, with reasons.

    A shop under a daily load, a worker that leaks memory, a queue's consumer that goes to
    zero and back, an HPA and a VPA on one CPU, a node that is fuller than it looks.
    """
    limit_s = _limit_s(duration)
    if not _SLOWEST <= speed <= _FASTEST:
        raise click.BadParameter(
            f"{speed:g} is not between {_SLOWEST:g} and {_FASTEST:g}", param_hint="--speed"
        )
    from podscale.cli.demo.stage import DemoError

    try:
        code = asyncio.run(_until_signalled(limit_s, chosen, speed))
    except KeyboardInterrupt:
        code = 0
    except DemoError as error:
        error.ctx = ctx
        raise
    ctx.exit(code)


def _limit_s(duration: str) -> float | None:
    from podscale.core.times.duration import DurationError, parse_go

    if not duration:
        return None
    try:
        limit_s = parse_go(duration)
    except DurationError as error:
        raise click.BadParameter(error.advice, param_hint="--duration") from None
    if limit_s <= 0:
        raise click.BadParameter("must be longer than 0s", param_hint="--duration")
    return limit_s


async def _until_signalled(limit_s: float | None, chosen: str, speed: float) -> int:
    """Run, and end in order on the first signal; later ones change nothing."""
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(_run(limit_s, chosen, speed))
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    is_asked = False

    def end() -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            running.cancel()

    for number in signals:
        loop.add_signal_handler(number, end)
    try:
        return await running
    except asyncio.CancelledError:
        note("podscale demo: ended, and nothing is left behind")
        return 0


async def _run(limit_s: float | None, chosen: str, speed: float) -> int:
    from podscale.cli.demo.look import Lines
    from podscale.cli.demo.scenes import SCENES
    from podscale.cli.demo.stage import stage

    scene = next(scene for scene in SCENES if scene.name == chosen)
    note("podscale demo: starting a cluster, Prometheus and every part of podscale …")
    looks: dict[str, list[SceneLook]] = {each.name: [] for each in SCENES}
    view: View = Lines(scene)
    if all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        from podscale.cli.demo.screen import DemoApp

        view = DemoApp(scene)
    async with stage(speed, view.say) as running:
        note(_hints(running, scene))
        view.page_url = running.page_url
        following = asyncio.create_task(_follow(running, view, looks))
        shown = [following]
        if not isinstance(view, Lines):
            # With a mouse of the program's own nobody could copy the commands above.
            drawing = view.run_async(inline=True, inline_no_clear=True, mouse=False)
            shown.append(asyncio.create_task(drawing))
        try:
            ended, _ = await asyncio.wait(
                shown, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            for each in ended:
                each.result()
        except asyncio.CancelledError:
            _conclude(looks, is_interrupted=True)
            raise
        finally:
            for each in shown:
                each.cancel()
            await asyncio.wait(shown)
        return _conclude(looks, is_interrupted=bool(ended))


async def _follow(running: "DemoStage", view: "View", looks: "dict[str, list[SceneLook]]") -> None:
    """Look at every scene and show them, again and again."""
    from podscale.cli.demo.look import look
    from podscale.cli.demo.scenes import SCENES

    pause_s = max(running.clock.real_s(_EVERY_S), _LEAST_S)
    while True:
        for scene in SCENES:
            looks[scene.name].append(await look(running, scene))
        view.show(looks, await running.warnings())
        await asyncio.sleep(pause_s)


def _hints(running: "DemoStage", scene: "Scene") -> str:
    own = str(Path(sys.executable).with_name("podscale"))
    podscale = "podscale" if shutil.which("podscale") else own
    kubectl = f"kubectl --server {running.cluster.server.url} -n {scene.namespace}"
    server = f"--server {running.cluster.server.url}"
    source = f"--prometheus-url {running.measurements.url}"
    return "\n".join(
        [
            f"Page: {running.page_url}",
            f"Prometheus: {running.measurements.url} ({running.measurements.what})",
            f"Rules file: {running.rules}",
            "Try it from another terminal:",
            *_commands(scene, kubectl, podscale, server, source),
            f"  {podscale} top -A {server}",
            continued(f"  {podscale} doctor --config {running.rules} {source} {server}"),
            "Ctrl-C ends it.",
        ]
    )


def _commands(
    scene: "Scene", kubectl: str, podscale: str, server: str, source: str
) -> Iterator[str]:
    yield f"  {kubectl} get --raw '{scene.measured}'"
    if scene.kind == "nodes":
        yield f"  {kubectl} top nodes"
        yield f"  {kubectl} describe node node-1"
        return
    yield f"  {kubectl} get {scene.kind},pods"
    yield f"  {kubectl} top pods"
    yield f"  {kubectl} get {'scaling' if scene.kind == 'hpa' else 'sizing'}decisions"
    yield f"  {podscale} explain {scene.kind}/{scene.workload} -n {scene.namespace} {server}"
    if scene.kind == "hpa":
        yield f"  {podscale} replay hpa/{scene.workload} -n {scene.namespace} --since 30m \\"
        yield f"    {server} {source}"


def continued(command: str) -> str:
    """Return a command for a shell with every option on a line of its own, if it is long."""
    is_long = len(command) > _LONGEST
    return command.replace(" --", " \\\n    --") if is_long else command


def _conclude(looks: "dict[str, list[SceneLook]]", *, is_interrupted: bool = False) -> int:
    from podscale.cli.demo.look import is_measured, summary

    click.echo("")
    for line in summary(looks):
        click.echo(line)
    if not is_measured(looks) and not is_interrupted:
        note("podscale demo: it ended before a metric was served; give it at least 30s")
        return EXIT_FAILED
    return 0
