"""What the demo shows: one changing screen on a terminal, plain lines everywhere else."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import click
from msgspec import structs

from podscale.cli.demo.frame import Frame
from podscale.cli.demo.look import SceneLook
from podscale.cli.demo.scenes import Scene
from podscale.cli.output import wants_colour

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST = 200  # characters of a plain line


class Lines:
    """Plain lines, for pipes and CI: the chosen scene, and what changes in the others."""

    def __init__(self, chosen: Scene) -> None:
        self._chosen = chosen
        self._told: dict[str, str] = {}
        self._warned: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def show(self, looks: Mapping[str, Sequence[SceneLook]], warnings: Sequence[str] = ()) -> None:
        """Take all looks so far, by scene, and what is wrong now."""
        for text in warnings:
            if text not in self._warned:
                self.say(text)
        self._warned = tuple(warnings)
        for name, seen in looks.items():
            if seen and (name == self._chosen.name or _changed(seen)):
                # A reason that stays is not said again on every line.
                is_new = self._told.get(name) != seen[-1].reason
                self._told[name] = seen[-1].reason
                _echo(_line(seen[-1], with_reason=is_new))

    def say(self, text: str) -> None:
        """Tell something beside the scenes."""
        _echo(f"podscale demo: {text}", err=True)

    def press(self, key: str) -> None:
        return None  # nothing is drawn again


class Screen:
    """One screen that changes, by looks and by keys."""

    def __init__(
        self, chosen: Scene, scenes: Sequence[Scene], console: "Console | None" = None
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._frame = Frame(chosen, {}, scenes)
        self._console = console or Console(no_color=not wants_colour())
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._live.__exit__(*reason)

    def show(self, looks: Mapping[str, Sequence[SceneLook]], warnings: Sequence[str] = ()) -> None:
        self._frame = structs.replace(self._frame, looks=looks, warnings=warnings)
        self._draw()

    def say(self, text: str) -> None:
        self._frame = structs.replace(self._frame, notes=(*self._frame.notes, text))

    def press(self, key: str) -> None:
        frame = self._frame
        if key == "?":
            self._frame = structs.replace(frame, is_help=not frame.is_help)
        elif key.isdecimal() and 1 <= int(key) <= len(frame.scenes):
            self._frame = structs.replace(frame, scene=frame.scenes[int(key) - 1], is_help=False)
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        # The cursor stands below the last line.
        lines = self._frame.lines(self._console.width, max(self._console.height - 1, 1))
        texts = [Text(line.text, line.style, no_wrap=True, overflow="ellipsis") for line in lines]
        if texts:
            self._live.update(Group(*texts), refresh=True)


View = Screen | Lines


def _changed(seen: Sequence[SceneLook]) -> bool:
    if len(seen) < 2:
        return False
    before, now = seen[-2], seen[-1]
    return (before.replicas, before.request_mib, before.restarts) != (
        now.replicas,
        now.request_mib,
        now.restarts,
    )


def _line(now: SceneLook, *, with_reason: bool) -> str:
    values = " ".join(f"{pod.value:.1f}" for pod in now.pods if pod.value)
    size = f", requests {max(now.request_mib):.0f} MiB" if now.request_mib else ""
    told = f"load {now.load}  replicas {now.replicas:2d}{size}"
    of = "pod"
    if now.scene == "nodes":
        told, of = now.load, "node"
    told += f"  per {of} [{values}]" if values else ""
    return f"{now.at_s:5.0f}s {now.scene:6}  {told}" + (f"  {now.reason}" if with_reason else "")


def _echo(text: str, *, err: bool = False) -> None:
    for line in textwrap.wrap(text, _LONGEST, subsequent_indent=" " * 8, break_on_hyphens=False):
        click.echo(line, err=err)
