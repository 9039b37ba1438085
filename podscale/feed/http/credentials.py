"""What a request to Prometheus carries to be let in: headers and TLS, from options and files.

Files are looked at again at most once a second and read again when they changed, so that
rotated tokens and certificates take effect without a restart.
"""

import asyncio
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from podscale.feed.options import PrometheusOptions

LOOK_AGAIN_S = 1.0

Stamp = tuple[tuple[int, int, int] | None, ...]


class PrometheusCredentials:
    """The current headers and TLS context; a broken file keeps the last good ones."""

    def __init__(
        self, options: PrometheusOptions, on_error: Callable[[Exception], None] | None = None
    ) -> None:
        self._options = options
        self._on_error = on_error
        self._files = [
            path
            for path in (
                options.token_file,
                options.password_file,
                options.ca_file,
                options.client_cert_file,
                options.client_key_file,
            )
            if path is not None
        ]
        self._stamp: Stamp | None = None
        self._looked_s = float("-inf")
        self._looking: asyncio.Lock = asyncio.Lock()
        self.headers: dict[str, str] = {}
        self.tls: ssl.SSLContext | bool = True

    async def refresh(self) -> None:
        """Read changed files. The first call raises OSError or ssl.SSLError; later ones keep
        what worked and report to ``on_error``.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked_s < LOOK_AGAIN_S:
            return
        async with self._looking:
            if now - self._looked_s < LOOK_AGAIN_S:
                return
            try:
                await asyncio.to_thread(self._load)
            except (OSError, ValueError) as error:
                if self._stamp is None:
                    raise
                if self._on_error is not None:
                    self._on_error(error)
            self._looked_s = now

    def _load(self) -> None:
        stamp = tuple(map(_stamp, self._files))
        if stamp == self._stamp:
            return
        carried, tls = headers(self._options), context(self._options)
        self.headers, self.tls, self._stamp = carried, tls, stamp


def context(options: PrometheusOptions) -> ssl.SSLContext:
    """Return the TLS settings; raises OSError or ssl.SSLError for unusable files."""
    made = ssl.create_default_context(
        cafile=str(options.ca_file) if options.ca_file else None, cadata=options.ca_data
    )
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.is_insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if options.client_cert_file is not None:
        made.load_cert_chain(options.client_cert_file, options.client_key_file)
    elif options.client_cert_data is not None:
        # OpenSSL reads chains from files only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
            pem.write(f"{options.client_cert_data}\n{options.client_key_data or ''}")
            pem.flush()
            made.load_cert_chain(pem.name)
    return made


def headers(options: PrometheusOptions) -> dict[str, str]:
    """Return the headers to send; raises OSError for an unreadable token file.

    Who says who we are: a header that was written out, the URL, a token, a password of a
    kubeconfig, in this order (client-go's transports add what is not there yet).
    """
    made = dict(options.headers)
    token = options.token
    if options.token_file is not None:
        token = _secret(options.token_file, "token")
    url = urlsplit(options.url)
    if any(name.lower() == "authorization" for name in made):
        return made
    if url.username is not None:
        made["Authorization"] = _basic(unquote(url.username), unquote(url.password or ""))
    elif token:
        made["Authorization"] = f"Bearer {token}"
    elif options.username is not None:
        file = options.password_file
        password = options.password if file is None else _secret(file, "password")
        made["Authorization"] = _basic(options.username, password or "")
    return made


def _secret(file: Path, what: str) -> str:
    found = file.read_text().strip()
    if not found or not found.isprintable():
        problem = "empty" if not found else "not one line of text"
        raise OSError(f"{file}: the {what} is {problem}")
    return found


def _basic(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    # Mounted Secrets swap a symbolic link: the inode changes even where the time does not.
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)
