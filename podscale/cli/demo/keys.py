"""Single keys of the terminal, while a block runs."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Call ``pressed`` with each key; nothing where stdin is no terminal of ours.

    Ctrl-C stays a signal. Needs a running event loop.
    """
    if not _is_ours():
        yield
        return
    number, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def read() -> None:
        try:
            found = os.read(number, 64)
        except OSError:  # the terminal has gone
            found = b""
        if not found:
            loop.remove_reader(number)
        for key in found.decode("ascii", "ignore"):
            pressed(key)

    tty.setcbreak(number, termios.TCSANOW)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSANOW, before)


def _is_ours() -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        # A job in the background is stopped when it changes the terminal.
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True  # no terminal that controls us
