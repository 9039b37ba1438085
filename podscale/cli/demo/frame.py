"""One picture of the demo for a terminal of some size: lines that fit it. Pure.

What explains comes first: on a small terminal pods and the other scenes are left out before
the reason is.
"""

import textwrap
from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.cli.demo.look import PodLook, SceneLook
from podscale.cli.demo.scenes import Scene

KEYS = "1 shop · 2 worker · 3 queue · 4 both · 5 nodes · ? help · q ends"
HELP = (
    "1 to 5 show another scene: all of them run. q or Ctrl-C ends the demo and removes what it "
    "made. The lines above say the load, the size, and the newest decision with its reason; the "
    "bars are the pods' load against what is wanted, or memory against the limit. The page, whose "
    "address was printed at the start, shows every decision."
)
_BARS = " ▁▂▃▄▅▆▇█"
_BAR = 16  # columns
_NAME = 26
_HISTORY = 60  # looks
_LEAST_REASON = 3  # lines of it that are kept before pods are shown


class FrameLine(Struct, frozen=True):
    """One line and how it looks."""

    text: str
    style: str = ""


class Frame(Struct, frozen=True):
    """What there is to show."""

    scene: Scene
    looks: Mapping[str, Sequence[SceneLook]]  # by scene, the newest last
    scenes: Sequence[Scene] = ()
    warnings: Sequence[str] = ()  # what is wrong now
    notes: Sequence[str] = ()
    is_help: bool = False

    def lines(self, width: int, height: int) -> list[FrameLine]:
        """Return at most ``height`` lines of at most ``width`` columns, no word broken."""
        seen = self.looks.get(self.scene.name) or ()
        if not seen:
            return []
        now = seen[-1]
        head = [
            FrameLine(
                fitted(f"{self.scene.namespace}/{self.scene.workload}: {self.scene.title}", width)
            ),
            FrameLine(fitted(f"{now.at_s:.0f}s  {sized(now)}", width), "bold"),
        ]
        keys = [FrameLine(fitted(KEYS, width), "dim")]
        left = height - len(head) - len(keys)
        told = [FrameLine(fitted(f"! {each}", width), "yellow") for each in self.warnings[:2]]
        told += _wrapped(now.reason or "waiting for the first decision …", width)
        if self.is_help:
            told += [FrameLine(line.text, "dim") for line in _wrapped(HELP, width)]
        told = _kept(told, max(left - 2, _LEAST_REASON) if not self.is_help else left, width)
        left -= len(told)
        spark = [FrameLine(_spark(seen[-_HISTORY:], width), "cyan")][: max(left, 0)]
        left -= len(spark)
        others = [
            FrameLine(
                fitted(f"{scene.namespace}/{scene.workload}: {sized(held[-1])}", width), "dim"
            )
            for scene in self.scenes
            if scene is not self.scene and (held := self.looks.get(scene.name))
        ]
        notes = [FrameLine(fitted(each, width), "yellow") for each in self.notes[-2:]]
        pods = _pods(now.pods, width, max(left - len(others) - len(notes), 1))[: max(left, 0)]
        rest = [*others, *notes][: max(left - len(pods), 0)]
        return [*head, *told, *spark, *pods, *rest, *keys][:height]


def fitted(text: str, width: int) -> str:
    """Return ``text`` cut behind a word, with an ellipsis, where it is longer than ``width``."""
    if len(text) <= width:
        return text
    kept = text[: width - 1]
    if text[width - 1] != " " and kept.rfind(" ") > width // 2:  # else a word fills the line
        kept = kept[: kept.rindex(" ")]
    return f"{kept.rstrip()}…"


def sized(now: SceneLook) -> str:
    """Return the load and the size of a scene in a few words."""
    if now.scene == "nodes":
        return now.load
    requests = f", requests {max(now.request_mib):.0f} MiB" if now.request_mib else ""
    return f"{now.load}, replicas {now.replicas}{requests}"


def _wrapped(text: str, width: int) -> list[FrameLine]:
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [FrameLine(fitted(line, width)) for line in lines]


def _kept(lines: Sequence[FrameLine], most: int, width: int) -> list[FrameLine]:
    if len(lines) <= most:
        return list(lines)
    *first, last = lines[: max(most, 1)]
    return [*first, FrameLine(fitted(f"{last.text} …", width), last.style)]


def _spark(seen: Sequence[SceneLook], width: int) -> str:
    if seen[-1].scene == "nodes":
        label, unit, sizes = "ballast", " cores", [look.load_value for look in seen]
    elif any(look.request_mib for look in seen):
        label, unit = "memory request", " MiB"
        sizes = [max(look.request_mib, default=0.0) for look in seen]
    else:
        label, unit, sizes = "replicas", "", [float(look.replicas) for look in seen]
    span = f"{min(sizes):.0f} to {max(sizes):.0f}{unit} in {seen[-1].at_s - seen[0].at_s:.0f} s"
    most = max(*sizes, 1.0)
    room = max(width - len(label) - len(span) - 4, 1)
    bars = "".join(_BARS[round(size / most * (len(_BARS) - 1))] for size in sizes[-room:])
    return fitted(f"{label}  {bars}  {span}", width)


def _pods(pods: Sequence[PodLook], width: int, most: int) -> list[FrameLine]:
    shown = pods if len(pods) <= most else pods[: most - 1]
    lines = []
    for pod in shown:
        bar = "█" * round(min(pod.share, 1.5) * _BAR / 1.5)
        name = pod.name if len(pod.name) <= _NAME else f"{pod.name[: _NAME - 1]}…"
        text = f"{name:{_NAME}}  {bar:{_BAR}}  {pod.note or f'{pod.value:.1f} req/s'}"
        lines.append(FrameLine(fitted(text, width)))
    if len(shown) < len(pods):
        lines.append(FrameLine(fitted(f"… and {len(pods) - len(shown)} more pods", width), "dim"))
    return lines
