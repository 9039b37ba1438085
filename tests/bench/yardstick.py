"""The Go programs of the benches, built with plain ``go build`` into the tool cache."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.tools import cache

SOURCES = Path(__file__).parent / "go"


def program(name: str) -> Path:
    """Build ``tests/bench/go/NAME`` if its source changed, and return the binary."""
    source = SOURCES / name
    built = cache.cache_directory() / "bench" / name
    newest = max(file.stat().st_mtime for file in source.iterdir())
    if not built.exists() or built.stat().st_mtime < newest:
        built.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-o", str(built), "."], cwd=source, check=True)
    return built


def load(
    urls: list[str],
    scratch: Path,
    *,
    clients: int,
    seconds: float,
    rate: float = 0.0,
    requests: int = 0,
    token: str = "",
    accepts_gzip: bool = False,
    apart: bool = False,
) -> dict[str, Any]:
    """Send GETs to ``urls`` in turn; return the load generator's figures.

    ``rate`` is over all clients, 0 is a closed loop; ``requests`` ends it early; ``apart`` gives
    each client a connection of its own, else they share those that are idle.
    """
    listed = scratch / "urls.txt"
    listed.write_text("\n".join(urls))
    done = subprocess.run(
        [
            str(program("httpyard")), "load",
            "-clients", str(clients), "-rate", str(rate), "-seconds", str(seconds),
            "-requests", str(requests), "-token", token,
            *(["-gzip"] if accepts_gzip else []), *(["-apart"] if apart else []), str(listed),
        ],
        capture_output=True, text=True, check=True, timeout=seconds + 60,
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
