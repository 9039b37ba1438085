"""The demo in pipes and CI: plain lines of the chosen scene, and of what changes in the others."""

import textwrap
from collections.abc import Mapping, Sequence

import click

from podscale.cli.demo.look import SceneLook
from podscale.cli.demo.scenes import Scene

_LONGEST = 200  # characters of a plain line


class Lines:
    """Prints as the looks come."""

    def __init__(self, chosen: Scene) -> None:
        self._chosen = chosen
        self._reasons: dict[str, str] = {}
        self._warnings: Sequence[str] = ()

    def show(self, looks: Mapping[str, Sequence[SceneLook]], warnings: Sequence[str]) -> None:
        """Take all looks so far, by scene, and what is wrong now."""
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
        """Tell something beside the scenes."""
        _echo(f"podscale demo: {text}", err=True)


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
