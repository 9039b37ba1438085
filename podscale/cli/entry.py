"""The ``podscale`` program: its commands, where each lives, and its line in ``--help``; which of
them runs, by name or by ``argv[0]``.

Only this module, what writes errors and click are loaded for ``--help`` (150 ms of CPU are allowed
for it); a command's module is imported when that command is chosen.
"""

import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import click
import click.shell_completion

from podscale.cli.output import printable, said
from podscale.core.plainwords import plain_words
from podscale.core.unfailing import unfailing


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
    "demo": CommandEntry("podscale.cli.demo.command", "Watch a simulated cluster autoscale."),
    "explain": CommandEntry("podscale.cli.commands.explain", "Explain what an HPA or a VPA did."),
    "top": CommandEntry("podscale.cli.top.command", "Show HPAs and VPAs in a terminal, live."),
    "doctor": CommandEntry("podscale.cli.doctor.command", "Find out why a metric is missing."),
    "migrate": CommandEntry("podscale.cli.commands.migrate",
                            "Show what moving to podscale would change."),
    "replay": CommandEntry("podscale.cli.replay.command",
                           "Show what another setting would have done, and cost."),
    "report": CommandEntry("podscale.cli.report.command",
                           "Show what a cluster could save, and the risk of doing so."),
    "serve": CommandEntry(_PROCESSES, "Run adapter and webhook, which answer requests.", "serve"),
    "control": CommandEntry(_PROCESSES, "Run the HPA, the recommender and the updater.", "control"),
    "run": CommandEntry(_PROCESSES, "Run everything in one process (small clusters).", "run"),
    "adapter": CommandEntry(_PROCESSES, "Serve the three metrics APIs from Prometheus.", "adapter"),
    "hpa": CommandEntry("podscale.cli.commands.hpa",
                        "Run the HPA controller; `hpa eval` decides offline."),
    "recommender": CommandEntry(_PROCESSES, "Recommend requests (VPA).", "recommender"),
    "updater": CommandEntry(_PROCESSES, "Resize or evict pods whose requests differ (VPA).",
                            "updater"),
    "admission": CommandEntry(_PROCESSES, "Set requests of new pods (VPA webhook).", "admission"),
    "nodes": CommandEntry("podscale.cli.commands.nodes",
                          "Fill nodes by what pods really use; `nodes off` reverts it."),
    "config-gen": CommandEntry("podscale.cli.commands.config_gen",
                               "Print the adapter's default rules."),
    "completion": CommandEntry("podscale.cli.commands.completion",
                               "Set up completion in bash, zsh or fish."),
}  # fmt: skip

# Of a word of a call: the value of a header, or a URL's password.
_SECRET = re.compile(r"(?i)(authorization|cookie|token|api-?key|password)=.|://[^/@]*:[^/@]+@")

# Programs of other projects that the image answers for, by the name they are started under.
LAUNCHERS = {
    "adapter": "adapter",
    "recommender": "recommender",
    "updater": "updater",
    "admission-controller": "admission",
    "config-gen": "config-gen",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help lines without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _exists(COMMANDS[name].module)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None or not _exists(entry.module):
            return None
        return entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {meant[0]!r}?" if meant else "--help lists the commands"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx) from error

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        # The summaries are at hand; click would import every command for its help.
        item = click.shell_completion.CompletionItem
        return [
            item(name, help=COMMANDS[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(n, COMMANDS[n].summary) for n in self.list_commands(ctx)])


def _exists(module: str) -> bool:
    # The image is built without podscale.sandbox, and with it without the demo.
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it lies in
        return False


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="podscale")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.", expose_value=False)
def cli() -> None:
    """Autoscale Kubernetes workloads from Prometheus metrics, and explain every decision.

    \b
    podscale demo               see it on this machine, no cluster needed
    podscale explain hpa/web    why did it (not) scale?
    podscale doctor             why is my metric missing?

    Exit codes: 0 success, 1 failure or problems found, 2 usage or configuration error.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that ``argv`` names, or the launcher that ``argv[0]`` names."""
    _open_standard_files()
    # What is said there is beside the work, whoever says it: it must not end it.
    sys.stderr = unfailing(sys.stderr)
    given = list(sys.argv if argv is None else argv)
    program = PurePath(given[0]).name if given else "podscale"
    arguments = given[1:]
    if program in LAUNCHERS:
        # Upstream's manifests start `/adapter` with or without its own name as first argument.
        if arguments[:1] == [f"/{program}"]:
            arguments = arguments[1:]
        os.environ["PODSCALE_LAUNCHER"] = program
        arguments = [LAUNCHERS[program], *arguments]
        program = "podscale"
    elif program == "kubectl-podscale":
        program = "kubectl podscale"
    elif program == "__main__.py":  # python -m podscale
        program = "podscale"
    if arguments[:1] in (["help"], ["version"]):
        # As in kubectl; `help COMMAND` is the command's.
        arguments = [*arguments[1:], f"--{arguments[0]}"]
    # A leading --debug is the group's; programs with Kubernetes' flags have none of that name.
    is_debugging = "--debug" in arguments or bool(os.environ.get("PODSCALE_DEBUG"))
    if is_debugging:
        arguments = [word for word in arguments if word != "--debug"]
    if sys.stdout is None:  # closed by the caller
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as we live
    if any(map(_SECRET.search, arguments)):
        text = "a password or token in the arguments is visible in the list of processes"
        click.echo(f"{program}: {text}; give it in a file (--prometheus-token-file)", err=True)
    stdout = sys.stdout
    try:
        # Not click's standalone mode: it says three lines where one is enough.
        code = cli.main(
            args=arguments,
            prog_name=program,
            complete_var="_PODSCALE_COMPLETE",
            standalone_mode=False,
        )
    except SystemExit as ended:
        # click puts another stdout in place when its reader (head, less) has gone, and ends.
        code = 141 if sys.stdout is not stdout else ended.code
    except click.Abort:
        code = 130  # interrupted, as shells count it
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        if is_debugging:
            raise
        click.echo(f"{_command_of(error, program)}: {printable(one_line(error))}", err=True)
        code = error.exit_code
    except Exception as error:
        first: Exception = error
        while isinstance(first, ExceptionGroup):  # task groups wrap what their body raises
            first = first.exceptions[0]
        if isinstance(first, BrokenPipeError):
            # Whoever read us (head, less) has gone; Python would complain once more at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif is_debugging:
            raise
        else:
            click.echo(f"podscale: {said(first)} (--debug shows where)", err=True)
        code = 141 if isinstance(first, BrokenPipeError) else 1
    sys.exit(code if isinstance(code, int) else 0)


def _open_standard_files() -> None:
    # As Go's runtime does: a socket must not get the number of one that the caller closed, and
    # libuv aborts over it.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _command_of(error: click.ClickException, program: str) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if isinstance(context, click.Context) else program


def one_line(error: click.ClickException) -> str:
    """Return what is wrong with a call, and where to look."""
    text = " ".join(plain_words(error.format_message()).split()).rstrip(".")
    if isinstance(error, click.UsageError) and "--help" not in text:
        return f"{text} (see --help)"
    return text


def complete() -> None:
    """Answer kubectl's completion protocol (``kubectl_complete-podscale``)."""
    importlib.import_module("podscale.cli.commands.completion").main()
