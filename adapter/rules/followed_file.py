"""A file on disk: read at start, looked at again and again.

A mounted ConfigMap changes by swapping a symbolic link, so the file's identity is its
inode, time and size behind all links. A file that does not read well changes nothing,
and one that is being written is left alone until two looks in a row find it the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from adapter.errors import ConfigInvalid, Problem
from adapter.rules.yaml_nodes import is_blank

log = structlog.get_logger(__name__)

Stamp = tuple[int, int, int, int] | None
T = TypeVar("T")


class FollowedFile(Generic[T]):
    """Follows one file, and remembers how the last look at it went."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str, str], T],
        renewed: Callable[[T], Awaitable[None]],
        refused: Callable[[str], None],
        *,
        what: str,
        when_empty: str,
    ) -> None:
        """``parse`` returns what text means, given the file's name too (blocking; raises
        ``ConfigInvalid``); ``renewed`` takes what reads well, ``refused`` the text of what is
        wrong. ``what`` and ``when_empty``, for people: what the file holds, what to write to
        mean nothing.
        """
        self._path = path
        self._parse = parse
        self._renewed = renewed
        self._refused = refused
        self._what = what
        self._when_empty = when_empty
        self._stamp: Stamp = None  # of what was read last
        self._found: Stamp = None  # at the last look
        self.text = ""  # of what is in force
        self.problem = ""  # "": what is in force is what the file says

    async def first(self) -> T:
        """Return what the file holds at start; raises ``ConfigInvalid`` or ``OSError``."""
        self._stamp = self._found = await asyncio.to_thread(_stamp, self._path)
        self.text, found = await asyncio.to_thread(self._read)
        return found

    async def follow(self, interval_s: float) -> None:
        """Look at the file for ever."""
        while True:
            await asyncio.sleep(interval_s)
            await self.look()

    def retry(self) -> None:
        """Let the next look read a file that was refused, though it has not changed."""
        if self.problem:
            self._stamp = None

    async def look(self) -> None:
        """Take over the file if it has changed, stands still and reads well."""
        before, self._found = self._found, await asyncio.to_thread(_stamp, self._path)
        if self._found == self._stamp or self._found != before:
            return
        read = await self._read_again()
        if await asyncio.to_thread(_stamp, self._path) != before:
            return  # written again while it was read
        self._stamp = before
        if isinstance(read, str):
            self.problem = read
            log.error(f"{self._what} not reloaded, the old ones stay", error=self.problem)
            self._refused(self.problem)
            return
        text, found = read
        await self._renewed(found)
        self.text, self.problem = text, ""
        log.info(f"{self._what} reloaded", file=str(self._path))

    def _read(self) -> tuple[str, T]:
        text = text_of(self._path)
        return text, self._parse(text, str(self._path))

    async def _read_again(self) -> tuple[str, T] | str:
        """Return text and contents of the changed file, or why it is refused."""
        try:
            text, found = await asyncio.to_thread(self._read)
        except (ConfigInvalid, OSError) as error:
            return str(error)
        except Exception as error:  # a bug; at start it would be told, now it must not end us
            log.exception(f"{self._what} not read", file=str(self._path))
            return f"{self._path}: not readable ({type(error).__name__}): see the log"
        # At start nothing is lost by it. Later it is the first half of a truncate and a write.
        if is_blank(text):
            problem = Problem("", f"the file is empty; write {self._when_empty}")
            return str(ConfigInvalid([problem], str(self._path)))
        return text, found


def text_of(path: Path) -> str:
    """Return a file's text; what is no UTF-8 in it is left to its reader to refuse."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
