"""Commands that are programs with Kubernetes-style flags, rather than click commands.

``--flag=value``, ``--flag value`` and klog's ``-v=4`` must mean what they mean to the
upstream program, so such a command hands its words unread to ``podscale.serving.flags``.
"""

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from podscale.cli.inputs import EXIT_USAGE
from podscale.cli.output import plainly

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags

# Loads the flag table, and what runs with the parsed flags and the name of the launcher.
Load = Callable[[], "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]"]


def program(
    name: str,
    summary: str,
    load: Load,
    *,
    subcommands: Mapping[str, click.Command] = MappingProxyType({}),
) -> click.Command:
    """Return the command ``name``, whose first word may be one of ``subcommands`` instead of a
    flag; ``load`` imports what it needs when it is run."""

    class Program(click.Command):
        """Completes the subcommands' options, and the flags of its table."""

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            words: Sequence[str] = ctx.params.get("words") or ("",)
            if words[0] in subcommands:
                return subcommands[words[0]].shell_complete(ctx, incomplete)
            table, _ = load()
            return [
                CompletionItem(f"--{flag.name}", help=flag.help)
                for flag in table
                if f"--{flag.name}".startswith(incomplete)
                and incomplete.startswith("-")
                and not flag.name.endswith("*")
            ]

    def first_word(
        ctx: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if ctx.params.get("words"):
            return []
        return [CompletionItem(word, help=each.get_short_help_str())
                for word, each in subcommands.items() if word.startswith(incomplete)]  # fmt: skip

    @click.command(
        name,
        cls=Program,
        help=summary,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=first_word)
    @click.pass_context
    def command(ctx: click.Context, words: tuple[str, ...]) -> None:
        from podscale.serving import flags

        if words and words[0] in subcommands:
            # Errors go up: podscale.cli.entry says them in one line.
            done = subcommands[words[0]].main(
                args=list(words[1:]), prog_name=f"podscale {name} {words[0]}", standalone_mode=False
            )
            ctx.exit(done or 0)
        table, run = load()
        if {"-h", "--help"} & set(words):
            usage = "\n       ".join([f"Usage: podscale {name} [flags]", *(
                f"podscale {name} {word} [options]  (--help lists them)" for word in subcommands
            )])  # fmt: skip
            click.echo(f"{summary}\n\n{usage}\n\n{flags.usage(table)}")
            return
        try:
            parsed = flags.parse(words, table)
        except flags.FlagError as error:
            click.echo(f"podscale {name}: {plainly(str(error))} (--help lists all flags)", err=True)
            ctx.exit(EXIT_USAGE)
        # Taken out, so that a child of ours does not think it is a launcher, which ignores other
        # words as upstream's programs do.
        is_launcher = os.environ.pop("PODSCALE_LAUNCHER", "") != ""
        if parsed.arguments and not is_launcher:
            click.echo(_refused(name, parsed.arguments[0], subcommands), err=True)
            ctx.exit(EXIT_USAGE)
        import uvloop

        ctx.exit(uvloop.run(run(parsed, is_launcher)))

    return command


def _refused(name: str, word: str, subcommands: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, subcommands, n=1)
    hint = f"did you mean `podscale {name} {near[0]}`?" if near else "--help lists all flags"
    return f"podscale {name}: {word!r} is neither a flag nor the value of one ({hint})"
