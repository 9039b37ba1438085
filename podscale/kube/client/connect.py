"""The way to an API server: from a kubeconfig, from inside a pod, or a plain URL.

The only module that knows kubernetes_asyncio, and it imports it only to read a
kubeconfig (contexts, exec plugins): the import costs 0.5 s and 70 MB.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from podscale.core.showable import is_http_url, shown_url
from podscale.kube.client.api import Api
from podscale.kube.client.connection import Connection, Limiter
from podscale.kube.client.credentials import (
    SERVICE_ACCOUNT,
    Credentials,
    FixedCredentials,
    Identity,
    InClusterCredentials,
    NoKubeconfig,
    read_kubeconfig,
)
from podscale.kube.client.errors import NotConfigured

_log = structlog.get_logger()
_EXPIRY_MARGIN = timedelta(seconds=30)


class ApiServerTarget(Struct, frozen=True):
    """Which server, and as whom: what the command line says."""

    kubeconfig: str = ""  # file; "": KUBECONFIG, then in-cluster, then the default file
    context: str = ""
    server: str = ""  # the server's URL instead; alone it is enough, and no file is read
    impersonate: str = ""  # --as
    impersonate_groups: Sequence[str] = ()  # --as-group
    qps: float = 0.0  # client-side limit of requests/s; 0 is none
    burst: int = 0

    @property
    def is_named(self) -> bool:
        """Whether it says which server, rather than leaving that to where the process runs."""
        return bool(self.kubeconfig or self.server)


@asynccontextmanager
async def connect(
    target: ApiServerTarget,
    *,
    user_agent: str,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> AsyncIterator[Api]:
    """Open a connection; leaving the context closes it. Raises ``NotConfigured``.

    Nothing is sent yet: an API server that is down shows at the first request.
    """
    credentials = await asyncio.to_thread(_choose, target, environ, service_account)
    await credentials.current()  # what is wrong with files or plugins is told at once
    connection = Connection(
        credentials,
        user_agent=user_agent,
        impersonate=target.impersonate,
        impersonate_groups=tuple(target.impersonate_groups),
        limiter=Limiter(target.qps, target.burst) if target.qps > 0 else None,
    )
    async with connection:
        yield connection


def is_in_pod(
    environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT
) -> bool:
    """Return whether there is a ServiceAccount to be: whether in-cluster means something here."""
    try:
        InClusterCredentials(environ, service_account)
    except NotConfigured:
        return False
    return True


def _choose(
    target: ApiServerTarget, environ: Mapping[str, str], service_account: Path
) -> Credentials:
    named = target.kubeconfig or environ.get("KUBECONFIG", "")
    if target.server and not target.kubeconfig and not target.context:
        if not is_http_url(target.server):
            raise NotConfigured(f"--server {shown_url(target.server)}: not an http or https URL")
        tls = ssl.create_default_context() if target.server.startswith("https") else None
        refused = f"--server sends no credentials to {shown_url(target.server)}: give --kubeconfig"
        return FixedCredentials(Identity(target.server.rstrip("/"), tls=tls, refused=refused))
    default = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not named:
        try:
            return InClusterCredentials(environ, service_account)
        except NotConfigured:
            if not default.is_file():
                raise NotConfigured(
                    "no cluster is configured: KUBECONFIG is empty or not set, and there is no "
                    f"{default}. Give --kubeconfig, --lister-kubeconfig or --server"
                ) from None
        named = str(default)
    if Path(named).expanduser().is_dir():
        raise NotConfigured(f"the kubeconfig {named} is a directory")
    if not any(Path(part).expanduser().is_file() for part in named.split(os.pathsep) if part):
        raise NotConfigured(f"the kubeconfig {named} does not exist")
    if os.pathsep not in named and not Path(named).expanduser().read_bytes().strip():
        raise NotConfigured(f"the kubeconfig {named} is empty")
    return _Kubeconfig(named, target.context, target.server)


class _Kubeconfig:
    """The identity that a context of a kubeconfig describes; read anew when refused or expired."""

    def __init__(self, files: str, context: str, server: str) -> None:
        self._files = files
        self._context = context
        self._server = server
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._renewing = asyncio.Lock()

    async def current(self) -> Identity:
        if self._identity is None or (self._expires and datetime.now(UTC) >= self._expires):
            return await self.renew()
        return self._identity

    async def renew(self) -> Identity:
        old = self._identity
        async with self._renewing:
            if self._identity is None:
                self._identity = await self._load()
            elif self._identity is old:  # else another request renewed it while we waited
                try:
                    self._identity = await self._load()
                except NotConfigured as error:
                    # The old identity earns a 401, which says more than a dead task would.
                    _log.warning("credentials not renewed", error=str(error))
            return self._identity

    async def _load(self) -> Identity:
        client, kube_config = await asyncio.to_thread(_modules)
        settings = client.Configuration()
        settings.host = ""
        try:
            # Exec plugins and OIDC refreshes run in here; a refreshed OIDC token is
            # written back as kubectl does, because the old refresh token is void then.
            loaded = await kube_config.load_kube_config(
                self._files, self._context or None, settings, persist_config=True
            )
            host = (self._server or settings.host).rstrip("/")
            tls = await asyncio.to_thread(_tls, settings) if host.startswith("https") else None
        except Exception as error:
            # kubernetes_asyncio raises whatever the file made it stumble over.
            where = f"context {self._context!r} of " if self._context else ""
            why = await asyncio.to_thread(_why_not, self._files) or _words(error)
            raise NotConfigured(f"cannot use {where}kubeconfig {self._files}: {why}") from error
        if not host:
            raise NotConfigured(f"the kubeconfig {self._files} names no server")
        expires = getattr(loaded, "exec_plugin_expiry", None)
        self._expires = expires - _EXPIRY_MARGIN if expires else None
        token = settings.api_key.get("BearerToken")
        return Identity(
            server=host,
            headers={"Authorization": token} if token else {},
            tls=tls,
            server_hostname=settings.tls_server_name or None,
            proxy=settings.proxy or None,
            refused=f"{shown_url(host)} does not accept {_user(loaded)} of kubeconfig "
            f"{self._files}: log in again or renew its token or certificate, or choose another "
            "by --kubeconfig or --context",
        )


def _user(loaded: Any) -> str:
    """Return the user of the context that was loaded, for people."""
    context: Any = getattr(loaded, "_current_context", None)
    user = context and context["context"].safe_get("user")
    return f"user {user!r} (context {context['name']!r})" if user else "the user"


def _why_not(files: str) -> str:
    """Return what is wrong with the first file that is no kubeconfig, "" where all are."""
    for part in files.split(os.pathsep):
        path = Path(part).expanduser()
        if not part or not path.is_file():
            continue
        try:
            read_kubeconfig(path)
        except NoKubeconfig as error:
            return str(error)
    return ""


def _words(error: Exception) -> str:
    return " ".join(str(error).split())  # PyYAML's and the plugins' have several lines


def _tls(settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert or None)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _modules() -> tuple[Any, Any]:
    from kubernetes_asyncio import client
    from kubernetes_asyncio.config import kube_config

    return client, kube_config
