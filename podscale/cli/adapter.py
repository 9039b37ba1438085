"""``podscale adapter``: prometheus-adapter's flags and manifests, unchanged."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from podscale.cli.program import before, flags_refused, program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from adapter import flags, main
    from podscale.serving import flag_table

    def run(parsed: "Flags", is_launcher: bool) -> Coroutine[Any, Any, int]:
        return before(
            "adapter",
            lambda: flags_refused([*flags.problems(parsed), *flag_table.problems(parsed)]),
            lambda: main.run(parsed, is_launcher=is_launcher),
        )

    return flags.TABLE, run


command = program("adapter", "Serve the three metrics APIs from Prometheus.", _load)
