"""Options that every command talking to a cluster shares, with kubectl's names and meanings."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podscale.cli.inputs import WrongInput, collecting

if TYPE_CHECKING:
    from podscale.kube.client.api import Api


def namespace_of(kubeconfig: str, context: str) -> str:
    """Return the namespace of the context in use, "default" where none is set."""
    files = _files(kubeconfig)
    current = (str(each["current-context"]) for each in files if each.get("current-context"))
    chosen = context or next(current, "")
    for each in _entries(kubeconfig):
        if each.get("name") == chosen:
            about = each.get("context")
            if isinstance(about, dict) and about.get("namespace"):
                return str(about["namespace"])
    return "default"


def context_names(kubeconfig: str) -> list[str]:
    return sorted({str(each.get("name", "")) for each in _entries(kubeconfig)} - {""})


def _entries(kubeconfig: str) -> Iterator[dict[str, Any]]:
    for document in _files(kubeconfig):
        listed = document.get("contexts")
        if isinstance(listed, list):
            yield from (each for each in listed if isinstance(each, dict))


def _files(kubeconfig: str) -> Iterator[dict[str, Any]]:
    # Imported here: --help must not load it.
    from podscale.kube.client.credentials import NoKubeconfig, read_kubeconfig

    default = Path(os.environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    named = kubeconfig or os.environ.get("KUBECONFIG", "") or str(default)
    for part in named.split(os.pathsep):
        try:
            yield read_kubeconfig(Path(part).expanduser())
        except NoKubeconfig:
            continue  # who connects says what is wrong with it


F = TypeVar("F", bound=Callable[..., object])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]

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
            is_bare = self.server and not self.kubeconfig and not self.context
            self._namespace = "default" if is_bare else namespace_of(self.kubeconfig, self.context)
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
            kubeconfig=self.kubeconfig, context=self.context, server=self.server,
            impersonate=self.impersonate, impersonate_groups=self.impersonate_groups,
        )  # fmt: skip
        try:
            async with connect(target, user_agent=user_agent(part)) as api:
                yield api
        except NotConfigured as error:
            raise NoCluster(str(error)) from None


def cluster_options(command: F, *, has_namespace: bool = True) -> F:
    """Add the options; the command receives one ``cluster: ClusterChoice``."""
    options = [
        click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig file."),
        click.option("--context", default="", help="The context of the kubeconfig to use.",
                     shell_complete=_contexts),
        click.option("-s", "--server", default="", metavar="URL",
                     help="The URL of the API server, used without a kubeconfig."),
        click.option("--as", "impersonate", default="", metavar="USER",
                     help="The user to impersonate."),
        click.option("--as-group", "impersonate_groups", multiple=True, metavar="GROUP",
                     help="A group to impersonate. Repeatable."),
    ]  # fmt: skip
    if has_namespace:
        options += [
            click.option("-n", "--namespace", default="", shell_complete=_namespaces,
                         help="The namespace. Default: that of the context."),
            click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces."),
        ]  # fmt: skip
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
_PATIENCE_S = 2.0  # a shell that waits longer for a cluster feels broken
_MOST = "500"
_HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
_VPAS = "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers"
_PATHS = {
    "hpa": _HPAS,
    "horizontalpodautoscaler": _HPAS,
    "podautoscaler": "/apis/autoscaling.podscale.io/v1/namespaces/{}/podautoscalers",
    "vpa": _VPAS,
    "verticalpodautoscaler": _VPAS,
}


def kind_and_name(*kinds: str) -> Complete:
    """Return what completes KIND/NAME: the kinds, then names of the cluster's objects."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        kind, slash, _ = incomplete.partition("/")
        if not slash:
            # A slash follows, so the shell must not put a blank.
            return [f"{each}/" for each in kinds if each.startswith(kind)]
        path = _PATHS.get(kind.lower())
        names = [f"{kind}/{name}" for name in _names(ctx, path)] if path else []
        return [each for each in names if each.startswith(incomplete)]

    return complete


def _namespaces(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(ctx, "/api/v1/namespaces") if name.startswith(incomplete)]


def _contexts(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:

    names = context_names(str(ctx.params.get("kubeconfig") or ""))
    return [name for name in names if name.startswith(incomplete)]


def _names(ctx: click.Context, path: str) -> list[str]:
    """Return the names below ``path``; none where a cluster does not answer at once."""
    # Imported when a shell asks: --help must not load it.
    from podscale.core.json_decoder import decode_json

    async def listed() -> bytes:
        choice = ClusterChoice(ctx.params)
        where = path.format(choice.only_namespace)
        async with choice.connect("completion") as api:
            query = {"limit": _MOST}
            return (await api.request("GET", where, query=query, timeout_s=_PATIENCE_S)).body

    try:
        body = asyncio.run(asyncio.wait_for(listed(), _PATIENCE_S))
        return sorted(str(item["metadata"]["name"]) for item in decode_json(body)["items"])
    except Exception:  # noqa: BLE001 - a shell that completes shows no errors
        return []
