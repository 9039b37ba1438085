"""Options that every command talking to a cluster shares, with kubectl's names and meanings."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from podscale.kube.api import Api

F = TypeVar("F", bound=Callable[..., object])

EXIT_FAILED = 1  # it ran, and what was asked for could not be had
EXIT_USAGE = 2  # the call was wrong


class ClusterChoice:
    """Which cluster and which namespace a command was pointed at."""

    def __init__(
        self,
        kubeconfig: str,
        context: str,
        server: str,
        impersonate: str,
        impersonate_groups: tuple[str, ...],
        namespace: str,
        all_namespaces: bool,
    ) -> None:
        self.kubeconfig = kubeconfig
        self.context = context
        self.server = server
        self.impersonate = impersonate
        self.impersonate_groups = impersonate_groups
        self.namespace = namespace
        self.all_namespaces = all_namespaces

    @asynccontextmanager
    async def connect(self, part: str) -> "AsyncIterator[Api]":
        """Open the connection; raises ``click.ClickException`` when none is configured."""
        # Imported here: --help must not load aiohttp.
        from podscale.kube.api import user_agent
        from podscale.kube.connect import Target, connect
        from podscale.kube.errors import NotConfigured

        target = Target(
            kubeconfig=self.kubeconfig,
            context=self.context,
            server=self.server,
            impersonate=self.impersonate,
            impersonate_groups=self.impersonate_groups,
        )
        try:
            async with connect(target, user_agent=user_agent(part)) as api:
                yield api
        except NotConfigured as error:
            raise click.ClickException(str(error)) from None


def cluster_options(command: F) -> F:
    """Add the options; the command receives one ``cluster: ClusterChoice``."""

    options = [
        click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file."),
        click.option("--context", default="", help="The context of the kubeconfig to use."),
        click.option(
            "-s", "--server", default="", metavar="URL", help="The API server, instead of a file."
        ),
        click.option(
            "--as", "impersonate", default="", metavar="USER", help="Act as another user."
        ),
        click.option(
            "--as-group", "impersonate_groups", multiple=True, metavar="GROUP", help="and groups."
        ),
        click.option("-n", "--namespace", default="default", show_default=True),
        click.option("-A", "--all-namespaces", is_flag=True, help="Look in every namespace."),
    ]
    wrapped: Callable[..., object] = _collecting(command)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # click's decorators keep the callable


_FIELDS = (
    "kubeconfig",
    "context",
    "server",
    "impersonate",
    "impersonate_groups",
    "namespace",
    "all_namespaces",
)


def _collecting(command: Callable[..., object]) -> Callable[..., object]:
    def collected(**given: object) -> object:
        picked = {name: given.pop(name) for name in _FIELDS}
        return command(cluster=ClusterChoice(**picked), **given)  # type: ignore[arg-type]

    collected.__doc__ = command.__doc__
    collected.__name__ = command.__name__
    # Options that were put on before these live on the function click decorated.
    collected.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    return collected
