"""``podscale completion SHELL``, and what kubectl asks back.

The three shells are click's. kubectl asks ``kubectl_complete-podscale`` with the words so far
and takes cobra's answer: a candidate a line, then a number (4: no file names, 2: no blank).
"""

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_PODSCALE_COMPLETE"
_NO_FILES, _NO_FILES_NO_BLANK = ":4", ":6"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print what makes a shell complete podscale's words.

    \b
    bash: source <(podscale completion bash)
    zsh:  source <(podscale completion zsh)
    fish: podscale completion fish | source

    kubectl completes `kubectl podscale` by itself where kubectl_complete-podscale is on the
    PATH, as it is after pip install.
    """
    from podscale.cli.entry import cli

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the shells of SHELLS are click's
    click.echo(kind(cli, {}, "podscale", _VARIABLE).source())


def kubectl(words: Sequence[str]) -> str:
    """Return cobra's answer for the words behind ``kubectl podscale``, the last one unfinished."""
    from podscale.cli.entry import cli

    *before, incomplete = words or [""]
    found = ShellComplete(cli, {}, "kubectl podscale", _VARIABLE).get_completions(
        before, incomplete
    )
    lines = [f"{each.value}\t{each.help}" if each.help else each.value for each in found]
    is_begun = any(each.value.endswith("/") for each in found)  # a name has to follow
    return "\n".join([*lines, _NO_FILES_NO_BLANK if is_begun else _NO_FILES])


def main() -> None:
    """Answer kubectl."""
    click.echo(kubectl(sys.argv[1:]))
