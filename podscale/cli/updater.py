"""``podscale updater``: resizes or evicts running pods, with upstream's flags."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from podscale.cli.program import before, flags_refused, program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from podscale.serving import flag_table
    from vpa.updater import flags, main

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        return before(
            "updater",
            lambda: flags_refused([*flag_table.problems(parsed), *flags.problems(parsed)]),
            lambda: main.run(parsed),
        )

    return flags.TABLE, run


command = program("updater", "Resize or evict pods whose requests are off (VPA).", _load)
