"""The rules file on disk: read at start, looked at again and again.

A mounted ConfigMap changes by swapping a symbolic link, so the file's identity is its
inode, time and size behind all links. A file that does not read well changes nothing,
and one that is being written is left alone until two looks in a row find it the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from adapter.discovery.mapping import ResourceMapper
from adapter.errors import ConfigInvalid, Problem
from adapter.rules.ruleset import RuleSet, read_rules

log = structlog.get_logger(__name__)

Stamp = tuple[int, int, int, int] | None


def load(path: Path, mapper: ResourceMapper) -> tuple[str, RuleSet]:
    """Return a file's text and its rules; raises ``ConfigInvalid`` or ``OSError``."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return text, read_rules(text, str(path), mapper)[1]


class RulesFile:
    """Follows one file, and remembers how the last look at it went."""

    def __init__(
        self,
        path: Path,
        mapper: ResourceMapper,
        renewed: Callable[[RuleSet], Awaitable[None]],
        refused: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``renewed`` takes rules that read well, ``refused`` the text of what is wrong."""
        self._path = path
        self._mapper = mapper
        self._renewed = renewed
        self._refused = refused
        self._clock = clock
        self._stamp: Stamp = None  # of what was read last
        self._found: Stamp = None  # at the last look
        self.text = ""  # of the rules in force
        self.problem = ""  # "": the rules in force are those of the file
        self.renewed_s = clock()

    async def first(self) -> RuleSet:
        """Return the rules at start; raises ``ConfigInvalid`` or ``OSError``."""
        self._stamp = self._found = await asyncio.to_thread(_stamp, self._path)
        self.text, rules = await asyncio.to_thread(load, self._path, self._mapper)
        return rules

    async def follow(self, interval_s: float) -> None:
        """Look at the file for ever."""
        while True:
            await asyncio.sleep(interval_s)
            await self.look()

    async def look(self) -> None:
        """Take over the file if it has changed, stands still and reads well."""
        before, self._found = self._found, await asyncio.to_thread(_stamp, self._path)
        if self._found == self._stamp or self._found != before:
            return
        read = await self._read()
        if await asyncio.to_thread(_stamp, self._path) != before:
            return  # written again while it was read
        self._stamp = before
        if isinstance(read, str):
            self.problem = read
            log.error("rules not reloaded, the old ones stay", error=self.problem)
            self._refused(self.problem)
            return
        text, rules = read
        await self._renewed(rules)
        self.text = text
        self.problem, self.renewed_s = "", self._clock()
        log.info(
            "rules reloaded",
            rules=len(rules.custom),
            external_rules=len(rules.external),
            has_resource_rules=rules.resource is not None,
        )

    async def _read(self) -> tuple[str, RuleSet] | str:
        """Return text and rules of the changed file, or why it is refused."""
        try:
            return await asyncio.to_thread(_reload, self._path, self._mapper)
        except (ConfigInvalid, OSError) as error:
            return str(error)
        except Exception as error:  # a bug; at start it would be told, now it must not end us
            log.exception("rules not read", file=str(self._path))
            return f"{self._path}: not readable ({type(error).__name__}): see the log"


def _reload(path: Path, mapper: ResourceMapper) -> tuple[str, RuleSet]:
    text, rules = load(path, mapper)
    # At start nothing is lost by it. Later it is the first half of a truncate and a write.
    if all(line.partition("#")[0].strip() in ("", "---", "...") for line in text.splitlines()):
        message = "the file is empty; write `rules: []` where no metrics are to be served"
        raise ConfigInvalid([Problem("", message)], str(path))
    return text, rules


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
