"""Where built programs lie, and how one is found. Never builds.

A module's directory is named by the hash of everything that decides its bytes, so
two checkouts with other versions share one cache without disturbing each other.
"""

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.tools.programs import ENVTEST_PROGRAMS, NEWEST, GoModule, module_of


def cache_directory() -> Path:
    """Return the cache: ``$PODSCALE_TOOLS``, or podscale/tools in the user's cache."""
    if chosen := os.environ.get("PODSCALE_TOOLS"):
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache) / "podscale" / "tools"


def go_version() -> str | None:
    """Return the toolchain's version (``go1.26.0``), or None where there is no Go."""
    go = shutil.which("go")
    return _go_version(go) if go else None


@functools.cache
def _go_version(go: str) -> str | None:
    asked = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def source_key(module: GoModule) -> str:
    """Return the hash of what is built: the locked modules, the packages, the flags."""
    digest = hashlib.sha256()
    for part in (
        (module.directory / "go.mod").read_bytes(),
        (module.directory / "go.sum").read_bytes(),
        repr(sorted(module.programs.items())).encode(),
        module.ldflags.encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def built(module: GoModule) -> Path | None:
    """Return the directory of the module's programs, or None before it is built.

    A machine without Go takes what any toolchain built (a cache restored in CI).
    """
    stem = f"{module.name}-{source_key(module)}"
    if version := go_version():
        directory = cache_directory() / f"{stem}-{version}"
        return directory if directory.is_dir() else None
    return next(iter(sorted(cache_directory().glob(f"{stem}-go*"))), None)


def find(name: str) -> Path | None:
    """Return the program of this name: KUBEBUILDER_ASSETS first, then the cache.

    Where an older release is asked for, what somebody's assets hold is not it.
    """
    module = module_of(name)
    assets = os.environ.get("KUBEBUILDER_ASSETS") if module.release in ("", NEWEST) else None
    if assets and name in ENVTEST_PROGRAMS and (given := Path(assets) / name).is_file():
        return given
    directory = built(module)
    return directory / name if directory else None
