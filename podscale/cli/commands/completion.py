"""``podscale completion SHELL`` and what the shells ask back, names of objects included.

The three shells are click's. kubectl asks ``kubectl_complete-podscale`` with the words so far
and takes cobra's answer: a candidate a line, then a number (4: no file names, 2: no blank).
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from podscale.core.json_decoder import decode_json

if TYPE_CHECKING:
    from podscale.cli.cluster import ClusterChoice

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_PODSCALE_COMPLETE"
_PATIENCE_S = 2.0  # a shell that waits longer for a cluster feels broken
_MOST = "500"
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


def objects(*kinds: str) -> Any:
    """Return what completes KIND/NAME: the kinds, then names of the cluster's objects."""

    def complete(
        ctx: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        kind, slash, begun = incomplete.partition("/")
        if not slash:
            # A slash follows, so the shell must not put a blank.
            return [CompletionItem(f"{each}/") for each in kinds if each.startswith(kind)]
        path = _paths().get(kind.lower())
        if path is None:
            return []
        found = names(ctx, path)
        return [CompletionItem(f"{kind}/{name}") for name in found if name.startswith(begun)]

    return complete


def namespaces(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete ``-n``."""
    found = names(ctx, "/api/v1/namespaces")
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def contexts(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from podscale.cli.kubeconfig import contexts as named

    found = named(str(ctx.params.get("kubeconfig") or ""))
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def names(ctx: click.Context, path: str) -> list[str]:
    """Return the names below ``path``; none where a cluster does not answer at once."""
    from podscale.cli.cluster import ClusterChoice

    choice = ClusterChoice(ctx.params)
    try:
        return asyncio.run(asyncio.wait_for(_listed(choice, path), _PATIENCE_S))
    except Exception:  # noqa: BLE001 - a shell that completes shows no errors
        return []


async def _listed(choice: "ClusterChoice", path: str) -> list[str]:

    namespace = choice.only_namespace
    async with choice.connect("completion") as api:
        answer = await api.request(
            "GET", path.format(namespace), query={"limit": _MOST}, timeout_s=_PATIENCE_S
        )
    items = decode_json(answer.body)["items"]
    return sorted({str(item["metadata"]["name"]) for item in items})


def _paths() -> dict[str, str]:
    hpas = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
    vpas = "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers"
    own = "/apis/autoscaling.podscale.io/v1/namespaces/{}/podautoscalers"
    return {
        "hpa": hpas, "horizontalpodautoscaler": hpas, "podautoscaler": own,
        "vpa": vpas, "verticalpodautoscaler": vpas,
    }  # fmt: skip
