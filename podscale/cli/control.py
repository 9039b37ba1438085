"""``podscale control``: what acts on a cluster, each part under a Lease of its own.

The HPA brings the connection, the feed and the server; the other parts join as companions.
"""

import importlib
import importlib.util
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from podscale.cli.program import program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags

# Modules that have ``companion(flags) -> hpa.main.OpenCompanion`` and ``flag_table()``.
PARTS = ("podscale.cli.recommender", "podscale.cli.updater")


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from hpa import main
    from podscale.cli import hpa

    parts = [
        module
        for name in PARTS
        if importlib.util.find_spec(name) is not None
        and hasattr(module := importlib.import_module(name), "companion")
    ]
    table = [flag for part in parts for flag in part.flag_table()]

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        companions = [part.companion(parsed) for part in parts]
        return main.run(parsed, hpa.opener(parsed), companions)

    return (*table, *hpa.flag_table()), run


command = program("control", "Run the HPA, the recommender and the updater.", _load)
