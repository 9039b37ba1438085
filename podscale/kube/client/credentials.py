"""Who we are to the API server, renewed as files and plugins renew it.

An ``Identity`` is what one request needs; ``Credentials`` hand out the current one. Whatever stands
in a kubeconfig may be a secret: a parser's words are shown without it.
"""

import asyncio
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog
from msgspec import Struct

from podscale.core.showable import shown_problem
from podscale.kube.client.errors import NotConfigured


class NoKubeconfig(ValueError):
    """The file cannot be read as a kubeconfig; the text says why and holds nothing of it."""


def read_kubeconfig(path: Path) -> dict[str, Any]:
    """Return the mapping that the file holds; raises ``NoKubeconfig``."""
    # Imported here: --help must not load it.
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = str(error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        why = f"{where}not YAML: {shown_problem(error.problem or '')}"
    except yaml.YAMLError:
        why = "not YAML: it holds characters that YAML does not allow"
    except RecursionError:
        why = "nested too deeply"
    except UnicodeDecodeError:
        why = "not a text file in UTF-8"
    except Exception:  # noqa: BLE001 - PyYAML stumbles over it, and quotes it
        why = "not YAML: it holds a value that is not of the type it is tagged with"
    else:
        if isinstance(found, dict):
            return found
        why = "not a kubeconfig: no mapping with clusters and contexts"
    raise NoKubeconfig(why)


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD_S = 60.0  # tokens live an hour and are replaced at 80 % of it
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


class Identity(Struct, frozen=True):
    """Where to send a request, and what proves who sends it."""

    server: str  # https://host:port, perhaps with a path; no slash at the end
    headers: Mapping[str, str] = {}
    tls: ssl.SSLContext | None = None  # None: plain http
    server_hostname: str | None = None  # name to verify instead of the URL's host
    proxy: str | None = None
    refused: str = ""  # what to tell people where the server does not accept it


class Credentials(Protocol):
    """Hands out the identity of the moment."""

    async def current(self) -> Identity:
        """Return what to use now; may read files or run plugins, seldom."""

    async def renew(self) -> Identity:
        """Return a new identity after the server refused the last one."""


class FixedCredentials:
    """An identity that never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    async def renew(self) -> Identity:
        return self._identity


class InClusterCredentials:
    """The pod's ServiceAccount. kubelet replaces token and CA in place, so they are re-read.

    One that cannot be used changes nothing, and does not keep the other from being used.
    Read by ourselves: an import of kubernetes_asyncio would cost every pod 70 MB for
    what is two files and two variables.
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        directory: Path = SERVICE_ACCOUNT,
        *,
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
        self._clock = clock
        self._identity: Identity | None = None
        self._read_at = 0.0
        self._token = ""
        self._ca = b""
        self._tls: ssl.SSLContext | None = None
        self._refused = ""

    async def current(self) -> Identity:
        if self._identity is None or self._clock() - self._read_at > _REREAD_S:
            return await self.renew()
        return self._identity

    async def renew(self) -> Identity:
        refused = await asyncio.to_thread(self._read)
        tls = self._tls
        if not self._token or tls is None:
            raise NotConfigured(f"cannot read the ServiceAccount's files: {refused}")
        if refused and refused != self._refused:
            structlog.get_logger().warning("ServiceAccountFilesRefused", error=refused)
        self._refused = refused
        self._identity = Identity(
            self._server,
            {"Authorization": f"Bearer {self._token}"},
            tls,
            refused=f"{self._server} does not accept the ServiceAccount's token in "
            f"{self._directory}: if the ServiceAccount was made anew, so must the pod be",
        )
        self._read_at = self._clock()
        return self._identity

    def _read(self) -> str:
        # Returns what could not be used. A projected volume is swapped by renaming; the old
        # token is good until then.
        refused = []
        for read in (self._read_token, self._read_ca):
            try:
                read()
            except (OSError, ValueError) as error:
                refused.append(str(error))
        return "; ".join(refused)

    def _read_token(self) -> None:
        path = self._directory / "token"
        token = path.read_text().strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"{path} does not hold one token")
        self._token = token

    def _read_ca(self) -> None:
        path = self._directory / "ca.crt"
        ca = path.read_bytes()
        if self._tls is not None and ca == self._ca:
            return  # a new context would mean new connections
        # Only what stands between the marks, as Go reads it: OpenSSL takes no text that is
        # not ASCII, and for no text at all the CAs of the system.
        found = _CERTIFICATE.findall(ca)
        if not found or len(found) != ca.count(b"-----BEGIN CERTIFICATE-----"):
            raise ValueError(f"{path} holds no CA certificate, or a part of one")
        try:
            self._tls = ssl.create_default_context(cadata=b"\n".join(found).decode("ascii"))
        except ssl.SSLError as error:
            raise ValueError(f"{path}: {error}") from error
        self._ca = ca
