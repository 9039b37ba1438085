"""``podscale hpa``: the controller with kube-controller-manager's flags; ``hpa eval`` offline."""

import click
import click.shell_completion

from podscale.cli.commands.processes import hpa as _serve


class _WithEval(click.Command):
    """Completes ``eval`` with its options, and the flags of the controller."""

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from podscale.cli.commands.hpa_eval import evaluate

        words = tuple(ctx.params.get("words") or ())
        if words[:1] == ("eval",):
            return evaluate.shell_complete(ctx, incomplete)
        return _serve.shell_complete(ctx, incomplete)


def _first_word(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    item = click.shell_completion.CompletionItem("eval", help="Decide once, from two files.")
    return [item] if not ctx.params.get("words") and "eval".startswith(incomplete) else []


@click.command(
    "hpa",
    cls=_WithEval,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=_first_word)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Scale by HorizontalPodAutoscalers; ``hpa eval`` decides offline."""
    if words[:1] == ("eval",):
        from podscale.cli.commands.hpa_eval import evaluate

        # Errors go up: podscale.cli.entry says them in one line.
        done = evaluate.main(
            args=list(words[1:]), prog_name="podscale hpa eval", standalone_mode=False
        )
        ctx.exit(done or 0)
    ctx.invoke(_serve, words=words)
