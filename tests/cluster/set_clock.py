"""``podscale`` whose wall clock is wrong by what a file says, seconds as eight bytes.

A program: ``python -m tests.cluster.set_clock FILE podscale's words``. The monotonic clock goes on,
as it does where somebody sets a machine's clock.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

from tests.tools.process import Program


def with_clock(program: Program, file: Path) -> Program:
    """Have a program that is not started yet go by such a clock, which is right at first."""
    set_by(file, 0.0)
    at = program.command.index("podscale")
    program.command[at : at + 1] = ["tests.cluster.set_clock", str(file)]
    return program


def set_by(file: Path, seconds: float) -> None:
    """Set the clock."""
    with file.open("r+b" if file.exists() else "wb") as out:
        out.write(struct.pack("d", seconds))


def main() -> None:
    """Set the clock, then run podscale: what it imports may keep ``time.time`` itself."""
    with Path(sys.argv.pop(1)).open("rb") as file:
        wrong_by = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    right = time.time
    time.time = lambda: right() + struct.unpack("d", wrong_by[:8])[0]
    from podscale.cli.entry import main as podscale

    podscale()


if __name__ == "__main__":
    main()
