"""Options that every command talking to a cluster shares, with kubectl's names and meanings."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podscale.cli.inputs import WrongInput, collecting

if TYPE_CHECKING:
    from podscale.kube.client.api import Api

F = TypeVar("F", bound=Callable[..., object])

EXIT_FAILED = 1  # it ran, and what was asked for could not be had
OTHER_CLUSTER = "Is it the right cluster? --kubeconfig, --context or --server choose another"


class NoCluster(WrongInput):
    """No cluster can be asked before the call, or a file it names, is changed."""


class ClusterChoice:
    """Which cluster and which namespace a command was pointed at."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """``given`` are click's parameters; those not given yet have their defaults."""
        self.kubeconfig, self.context, self.server, self.impersonate, self._namespace = (
            str(given.get(name) or "") for name in _TEXTS
        )
        self.impersonate_groups = tuple(given.get("impersonate_groups") or ())
        self.all_namespaces = bool(given.get("all_namespaces"))
        # In the call itself:
        self.names_namespace = bool(self._namespace) and not self.all_namespaces

    @property
    def is_named(self) -> bool:
        """Return whether the call itself says which cluster is meant."""
        return bool(self.kubeconfig or self.context or self.server)

    @property
    def namespace(self) -> str:
        """The namespace given, else that of the context, else default: as kubectl."""
        if not self._namespace:
            from podscale.cli.kubeconfig import namespace

            is_bare = self.server and not self.kubeconfig and not self.context
            self._namespace = "default" if is_bare else namespace(self.kubeconfig, self.context)
        return self._namespace

    @property
    def only_namespace(self) -> str:
        """The one namespace to look in; ``""``: all of them."""
        return "" if self.all_namespaces else self.namespace

    @asynccontextmanager
    async def connect(self, part: str) -> "AsyncIterator[Api]":
        """Open the connection; raises ``NoCluster``."""
        # Imported here: --help must not load aiohttp.
        from podscale.kube.client.api import user_agent
        from podscale.kube.client.connect import ApiServerTarget, connect
        from podscale.kube.client.errors import NotConfigured

        target = ApiServerTarget(
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
            raise NoCluster(str(error)) from None


def cluster_options(command: F, *, has_namespace: bool = True) -> F:
    """Add the options; the command receives one ``cluster: ClusterChoice``."""

    options = [
        click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file."),
        click.option(
            "--context",
            default="",
            help="The context of the kubeconfig to use.",
            shell_complete=_later("contexts"),
        ),
        click.option(
            "-s", "--server", default="", metavar="URL", help="The API server, instead of a file."
        ),
        click.option(
            "--as", "impersonate", default="", metavar="USER", help="Act as another user."
        ),
        click.option(
            "--as-group", "impersonate_groups", multiple=True, metavar="GROUP", help="and groups."
        ),
    ]
    if has_namespace:
        options += [
            click.option(
                "-n",
                "--namespace",
                default="",
                help="The namespace; not given: that of the context.",
                shell_complete=_later("namespaces"),
            ),
            click.option("-A", "--all-namespaces", is_flag=True, help="Look in every namespace."),
        ]
    fields = (*_CONNECTION, *(_NAMESPACE if has_namespace else ()))
    wrapped = collecting(command, "cluster", fields, ClusterChoice)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # click's decorators keep the callable


def connection_options(command: F) -> F:
    """Add those of them that say which cluster, for what is of no namespace."""
    return cluster_options(command, has_namespace=False)


_TEXTS = ("kubeconfig", "context", "server", "impersonate", "namespace")
_CONNECTION = ("kubeconfig", "context", "server", "impersonate", "impersonate_groups")
_NAMESPACE = ("namespace", "all_namespaces")


def kind_and_name(*kinds: str) -> Callable[..., Any]:
    """Return what completes an argument KIND/NAME."""
    return _later("objects", *kinds)


def _later(name: str, *words: str) -> Callable[..., Any]:
    # Imported when a shell asks: --help must not load it.
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        from podscale.cli.commands import completion

        found = getattr(completion, name)
        return (found(*words) if words else found)(ctx, parameter, incomplete)

    return complete
