"""The demo on a terminal: a tab a scene, and below it the newest decision before all else."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Sparkline, Static, Tab, Tabs

from podscale.cli.demo.look import SceneLook, latest_s
from podscale.cli.demo.scenes import SCENES, Scene

HELP = (
    "1 to 5 show another scene: all of them run. q or Ctrl-C ends the demo and removes what it "
    "made. The lines say the load, the size, and the newest decision with its reason; the bars "
    "are the pods' load against what is wanted, or memory against the limit. The page shows every "
    "decision: "
)
_BAR = 16  # columns
_HISTORY = 60  # looks
_PODS = 12


class DemoApp(App[None]):
    """All scenes, drawn below what the terminal shows already; ``show`` gives it the looks."""

    CSS = """
    Screen:inline { height: auto; max-height: 100vh; border: none; }
    Sparkline { height: 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(place), f"scene({scene.name!r})", scene.name)
            for place, scene in enumerate(SCENES, start=1)
        ),
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "ends"),
        Binding("Q,ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, chosen: Scene) -> None:
        super().__init__()
        self._chosen = chosen
        self._looks: Mapping[str, Sequence[SceneLook]] = {}
        self._warnings: Sequence[str] = ()
        self._notes: list[str] = []
        self.page_url = ""
        self._has_help = self._is_composed = False

    def compose(self) -> ComposeResult:
        yield Tabs(*(Tab(each.name, id=each.name) for each in SCENES), active=self._chosen.name)
        yield Static(markup=False, id="decision")
        yield Sparkline(id="sizes")
        yield Static(markup=False, id="pods")
        yield Footer()

    def on_mount(self) -> None:
        # Textual makes every task of the loop an eager one, also those of the demo's cluster.
        asyncio.get_running_loop().set_task_factory(None)
        self._is_composed = True

    def on_tabs_tab_activated(self, activated: Tabs.TabActivated) -> None:
        self._chosen = next(each for each in SCENES if each.name == activated.tab.id)
        self._draw()

    def action_scene(self, name: str) -> None:
        """Show another scene."""
        self._has_help = False
        self.query_one(Tabs).active = name

    def action_help(self) -> None:
        """Show what the keys do, or no longer."""
        self._has_help = not self._has_help
        self._draw()

    def show(self, looks: Mapping[str, Sequence[SceneLook]], warnings: Sequence[str]) -> None:
        """Take all looks so far, by scene, and what is wrong now."""
        self._looks, self._warnings = looks, warnings
        self._draw()

    def say(self, text: str) -> None:
        """Tell something beside the scenes, at the next look."""
        self._notes = [*self._notes, f"{latest_s(self._looks):.0f}s  {text}"][-2:]

    def _draw(self) -> None:
        looks = self._looks.get(self._chosen.name) or ()
        if not looks or not self._is_composed:
            return
        label, sizes = _sizes(looks[-_HISTORY:])
        decision = [*_decision(self._chosen, looks[-1], self._warnings)]
        decision[:0] = [Text(f"Page: {self.page_url}", "dim")] if self.page_url else []
        decision += [Text(HELP + self.page_url, "dim")] if self._has_help else []
        span_s = looks[-1].at_s - looks[-len(sizes)].at_s
        between = f"{label}: {min(sizes):.0f} to {max(sizes):.0f} in {span_s:.0f} s"
        decision.append(Text(between, "cyan"))
        others = [
            Text(f"{each.namespace}/{each.workload}: {sized(seen[-1])}", "dim")
            for each in SCENES
            if each is not self._chosen and (seen := self._looks.get(each.name))
        ]
        notes = [Text(note, "yellow") for note in self._notes]
        self.query_one("#decision", Static).update(Text("\n").join(decision))
        self.query_one(Sparkline).data = [0.0, *sizes]
        self.query_one("#pods", Static).update(
            Text("\n").join([*_pods(looks[-1]), *others, *notes])
        )


def sized(now: SceneLook) -> str:
    """Return the load and the size of a scene in a few words."""
    if now.scene == "nodes":
        return now.load
    requests = f", requests {max(now.request_mib):.0f} MiB" if now.request_mib else ""
    return f"{now.load}, replicas {now.replicas}{requests}"


def _decision(scene: Scene, now: SceneLook, warnings: Sequence[str]) -> Iterator[Text]:
    yield Text(f"{scene.namespace}/{scene.workload}: {scene.title}")
    yield Text(f"{now.at_s:.0f}s  {sized(now)}", "bold")
    for warning in warnings[:2]:
        yield Text(f"! {warning}", "yellow")
    yield Text(now.reason or "waiting for the first decision …")


def _sizes(looks: Sequence[SceneLook]) -> tuple[str, list[float]]:
    """Return what the line of bars shows, and its values."""
    if looks[-1].scene == "nodes":
        return "cores of ballast", [look.load_value for look in looks]
    if any(look.request_mib for look in looks):
        return "MiB of memory requested", [max(look.request_mib, default=0.0) for look in looks]
    return "replicas", [float(look.replicas) for look in looks]


def _pods(now: SceneLook) -> Iterator[Text]:
    for pod in now.pods[:_PODS]:
        bar = "█" * round(min(pod.share, 1.5) * _BAR / 1.5)
        yield Text(f"{pod.name:26}  {bar:{_BAR}}  {pod.note or f'{pod.value:.1f} req/s'}")
    if len(now.pods) > _PODS:
        yield Text(f"… and {len(now.pods) - _PODS} more pods", "dim")
