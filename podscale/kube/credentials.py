"""Who we are to the API server, renewed as files and plugins renew it.

An ``Identity`` is what one request needs; ``Credentials`` hand out the current one.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from podscale.kube.errors import NotConfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Identity(Struct, frozen=True):
    """Where to send a request, and what proves who sends it."""

    server: str  # https://host:port, perhaps with a path; no slash at the end
    headers: Mapping[str, str] = {}
    tls: ssl.SSLContext | None = None  # None: plain http
    server_hostname: str | None = None  # name to verify instead of the URL's host
    proxy: str | None = None


class Credentials(Protocol):
    """Hands out the identity of the moment."""

    async def current(self) -> Identity:
        """Return what to use now; may read files or run plugins, seldom."""
        ...

    async def renew(self) -> Identity:
        """Return a new identity after the server refused the last one."""
        ...


class Fixed:
    """An identity that never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    async def renew(self) -> Identity:
        return self._identity


class InCluster:
    """The pod's ServiceAccount. kubelet replaces token and CA in place, so they are re-read.

    Read by ourselves: an import of kubernetes_asyncio would cost every pod 70 MB for
    what is two files and two variables.
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        directory: Path = SERVICE_ACCOUNT,
        *,
        reread_s: float = 60.0,  # tokens live an hour and are replaced at 80 % of it
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port or not (directory / "token").is_file():
            raise NotConfigured(
                "not running in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set, or "
                f"{directory / 'token'} is missing"
            )
        self._server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._directory = directory
        self._reread_s = reread_s
        self._clock = clock
        self._identity: Identity | None = None
        self._read_at = 0.0
        self._ca = b""

    async def current(self) -> Identity:
        if self._identity is None or self._clock() - self._read_at > self._reread_s:
            return await self.renew()
        return self._identity

    async def renew(self) -> Identity:
        try:
            self._identity = await asyncio.to_thread(self._read)
        except (OSError, ssl.SSLError) as error:
            if self._identity is None:
                raise NotConfigured(f"cannot read the ServiceAccount's files: {error}") from error
            # A projected volume is swapped by renaming; the old token is good until then.
        self._read_at = self._clock()
        return self._identity

    def _read(self) -> Identity:
        token = (self._directory / "token").read_text().strip()
        ca = (self._directory / "ca.crt").read_bytes()
        old = self._identity
        if old is not None and old.tls is not None and ca == self._ca:
            tls = old.tls  # a new context would mean new connections
        else:
            tls = ssl.create_default_context(cadata=ca.decode())
            self._ca = ca
        return Identity(self._server, {"Authorization": f"Bearer {token}"}, tls)
