"""The page's files, read once from the package, and the headers every answer carries."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files

from msgspec import Struct

# Nothing from anywhere else, nothing inline: what an API object's name or a metric's label
# could smuggle in has no way to run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class File(Struct, frozen=True):
    """One file as it is served."""

    body: bytes
    content_type: str
    etag: str


def load() -> Mapping[str, File]:
    """Return the files by name; "" is the page itself. Blocking."""
    found: dict[str, File] = {}
    for entry in files("podscale.page").joinpath("static").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix not in TYPES:
            continue
        body = entry.read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        found[entry.name] = File(body, TYPES[suffix], etag)
    return {**found, "": found["index.html"]}
