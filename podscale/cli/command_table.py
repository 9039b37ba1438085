"""The commands of ``podscale``: where each lives, and its line in ``--help``."""

import importlib
from typing import NamedTuple

import click


class CommandEntry(NamedTuple):
    """Where a command lives and the line that lists it."""

    module: str
    summary: str
    attribute: str = "command"  # of the module: a click.Command

    def load(self) -> click.Command:
        """Import the module and return the command; raises ``TypeError`` where it is none."""
        command = getattr(importlib.import_module(self.module), self.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.module}.{self.attribute} is not a click command")
        return command


_PROCESSES = "podscale.cli.commands.processes"

# The order is that of --help.
COMMANDS = {
    "demo": CommandEntry(
        "podscale.cli.demo.command", "See a small cluster being sized, on this machine."
    ),
    "explain": CommandEntry(
        "podscale.cli.commands.explain", "Say why an HPA or a VPA did what it did."
    ),
    "top": CommandEntry("podscale.cli.top.command", "Show HPAs and VPAs in a terminal, live."),
    "doctor": CommandEntry("podscale.cli.doctor.command", "Find out why a metric is not there."),
    "migrate": CommandEntry(
        "podscale.cli.commands.migrate", "Show what moving to podscale would change."
    ),
    "replay": CommandEntry(
        "podscale.cli.replay.command", "Say what another HPA would have done, and its cost."
    ),
    "report": CommandEntry(
        "podscale.cli.report.command", "Say what a cluster could save, and how likely it hurts."
    ),
    "serve": CommandEntry(
        _PROCESSES, "Run what other programs wait for: metrics and admission.", "serve"
    ),
    "control": CommandEntry(_PROCESSES, "Run the HPA, the recommender and the updater.", "control"),
    "run": CommandEntry(_PROCESSES, "Run everything in one process (small clusters).", "run"),
    "adapter": CommandEntry(_PROCESSES, "Serve the three metrics APIs from Prometheus.", "adapter"),
    "hpa": CommandEntry(
        "podscale.cli.commands.hpa",
        "Scale by HorizontalPodAutoscalers; `hpa eval` decides offline.",
    ),
    "recommender": CommandEntry(_PROCESSES, "Recommend requests (VPA).", "recommender"),
    "updater": CommandEntry(
        _PROCESSES, "Resize or evict pods whose requests are off (VPA).", "updater"
    ),
    "admission": CommandEntry(
        _PROCESSES, "Set the requests of new pods (VPA webhook).", "admission"
    ),
    "nodes": CommandEntry(
        "podscale.cli.commands.nodes",
        "Fill nodes by what pods really use; `nodes off` takes it back.",
    ),
    "config-gen": CommandEntry(
        "podscale.cli.commands.config_gen", "Print the default rules of the adapter."
    ),
    "completion": CommandEntry(
        "podscale.cli.commands.completion", "Make bash, zsh or fish complete words."
    ),
}

# Programs of other projects that the image answers for, by the name they are started under.
LAUNCHERS = {
    "adapter": "adapter",
    "recommender": "recommender",
    "updater": "updater",
    "admission-controller": "admission",
    "config-gen": "config-gen",
}
