"""What the demo shows: one changing screen on a terminal, plain lines everywhere else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import click

from podscale.cli.demo.look import SceneLook
from podscale.cli.demo.scenes import Scene
from podscale.cli.output import wants_colour

_BARS = " ▁▂▃▄▅▆▇█"
_BAR = 16  # columns
_HISTORY = 70  # looks, so that it fits 80 columns


class View(Protocol):
    """Shows every look at all scenes. A context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...

    def show(self, looks: Mapping[str, Sequence[SceneLook]]) -> None:
        """Take all looks so far, by scene."""
        ...

    def say(self, text: str) -> None:
        """Tell something beside the scenes."""
        ...


class Lines:
    """Plain lines, for pipes and CI: the chosen scene, and what changes in the others."""

    def __init__(self, chosen: Scene) -> None:
        self._chosen = chosen
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def show(self, looks: Mapping[str, Sequence[SceneLook]]) -> None:
        for name, seen in looks.items():
            if seen and (name == self._chosen.name or _changed(seen)):
                # A reason that stays is not said again on every line.
                is_new = self._told.get(name) != seen[-1].reason
                self._told[name] = seen[-1].reason
                click.echo(_line(seen[-1], with_reason=is_new))

    def say(self, text: str) -> None:
        click.echo(f"podscale demo: {text}", err=True)


class Screen:
    """One screen that changes."""

    def __init__(self, chosen: Scene, scenes: Sequence[Scene]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._chosen, self._scenes = chosen, scenes
        self._notes: list[str] = []
        console = Console(no_color=not wants_colour())
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.__exit__(*reason)

    def show(self, looks: Mapping[str, Sequence[SceneLook]]) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        seen = looks.get(self._chosen.name) or ()
        if not seen:
            return
        now = seen[-1]
        table = Table(expand=False, box=None, pad_edge=False)
        table.add_column("pod", no_wrap=True, max_width=26)
        table.add_column("", no_wrap=True)
        table.add_column("", no_wrap=True, overflow="ellipsis")
        for pod in now.pods:
            bar = "█" * round(min(pod.share, 1.5) * _BAR / 1.5)
            table.add_row(pod.name, bar, pod.note or f"{pod.value:.1f} req/s")
        others = [
            Text(_short(scene, held[-1]), overflow="ellipsis", no_wrap=True, style="dim")
            for scene in self._scenes
            if scene is not self._chosen and (held := looks.get(scene.name))
        ]
        self._live.update(
            Group(
                Text(f"{self._chosen.namespace}/{self._chosen.workload}: {self._chosen.title}"),
                Text(f"{now.at_s:.0f}s  {now.load}  replicas {now.replicas}", style="bold"),
                Text(_history(seen[-_HISTORY:]), style="cyan"),
                table,
                Text(now.reason or "waiting for the first decision …"),
                *others,
                *(Text(note, style="yellow") for note in self._notes[-2:]),
            ),
            refresh=True,
        )

    def say(self, text: str) -> None:
        self._notes.append(text)


def _history(seen: Sequence[SceneLook]) -> str:
    sizes = [max(look.request_mib, default=0.0) or float(look.replicas) for look in seen]
    most = max(*sizes, 1.0)
    return "".join(_BARS[round(size / most * (len(_BARS) - 1))] for size in sizes)


def _changed(seen: Sequence[SceneLook]) -> bool:
    if len(seen) < 2:
        return False
    before, now = seen[-2], seen[-1]
    return (before.replicas, before.request_mib, before.restarts) != (
        now.replicas,
        now.request_mib,
        now.restarts,
    )


def _short(scene: Scene, now: SceneLook) -> str:
    return f"{scene.namespace}/{scene.workload}: {now.load}, replicas {now.replicas}" + _size(now)


def _size(now: SceneLook) -> str:
    if not now.request_mib:
        return ""
    return f", requests {max(now.request_mib):.0f} MiB"


def _line(now: SceneLook, *, with_reason: bool) -> str:
    values = " ".join(f"{pod.value:.1f}" for pod in now.pods if pod.value)
    per_pod = f"  per pod [{values}]" if values else ""
    return (
        f"{now.at_s:5.0f}s {now.scene:6}  load {now.load}  replicas {now.replicas:2d}"
        f"{_size(now)}{per_pod}" + (f"  {now.reason}" if with_reason else "")
    )
