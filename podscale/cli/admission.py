"""``podscale admission``: sizes new pods, with upstream's flags."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from podscale.cli.program import before, flags_refused, program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from vpa.admission import flags, main

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        return before(
            "admission", lambda: flags_refused(flags.problems(parsed)), lambda: main.run(parsed)
        )

    return flags.TABLE, run


command = program("admission", "Set the requests of new pods (VPA webhook).", _load)
