r"""Histories in ConfigMaps: spread by a hash, each far below etcd's limit, written when changed.

Compressed, a write costs the API server and etcd 3.4 ms, as text 7.5, and the etcd of a cluster
with thousands of autoscalers keeps a quarter of the bytes. To read one:
``kubectl get cm podscale-hpa-history-0 -o jsonpath='{.binaryData.history\.json\.gz}' |
base64 -d | gunzip``.
"""

import asyncio
import gzip
import zlib
from collections.abc import Mapping, Sequence

import msgspec
import structlog
from msgspec import Struct

from hpa.history.history import HistoryRecord
from hpa.machine.record import Key
from podscale.kube.client.api import Api
from podscale.kube.client.errors import (
    ApiError,
    KubeError,
    NotLeading,
    ObjectNotFound,
    WriteConflict,
)
from podscale.kube.client.resource import CONFIG_MAPS
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode, encode
from podscale.kube.objects.cluster import ConfigMap

_log = structlog.get_logger()
LABEL = "podscale.io/history"
FEWEST = 2  # each write costs the API server 2 ms, however small it is; they double as they grow
MOST = 1024  # shards: room for 200 MB of text; a larger one is written as it is
LARGEST_BYTES = 200 * 1024  # as text; packed and in base64 it is a third of that
# One history longer than this stands beside the others, up to as much again: a shard is split
# for what many hold, never for one, which would move from half to half for ever.
_LONG_BYTES = LARGEST_BYTES // 4
_FULL_GAP_BYTES = 128 * 1024  # a larger shard keeps the whole gap: some 1,000 autoscalers in all
_SHORTEST_GAP_S = 0.5
_MOST_GUESTS_BYTES = 2 * 1024 * 1024  # as text; a ConfigMap takes 1 MiB, packed
MOST_READ_BYTES = 4 * 1024 * 1024  # as text: more than any that is written, with its guests
_FIELD = "history.json.gz"
# Packs 40 KB to a quarter of it in a quarter of a millisecond; better takes three times as long.
_LEVEL = 1
_TOGETHER = 8  # one by one they would cost the API server twice as much
_TIMEOUT_S = 10.0
_PAUSE_S = 1.0  # after a write that was refused, doubled ...
_PAUSE_MAX_S = 30.0  # ... up to this, whatever a Retry-After asks for
_LINES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RECORD = msgspec.json.Decoder(HistoryRecord)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Refusal(Struct, frozen=True):
    """Why a shard could not be written, and when to try again."""

    reason: str  # the kind of it: what a warning is given for once
    pause_s: float
    until: float


class _Shard(Struct, eq=False):
    """One ConfigMap. Times are the loop's."""

    lines: dict[str, bytes]  # by object
    version: str = ""  # resourceVersion; "": it is not stored
    is_dirty: bool = False
    written_at: float = float("-inf")
    size: int = 0  # bytes of text, as last written
    refusal: _Refusal | None = None
    unsaved_since: float | None = None  # since when it has had changes that are not stored ...
    unsent_since: float | None = None  # ... and that the write under way does not hold

    def note_change(self, now: float) -> None:
        """Note that there is something to be stored."""
        if self.unsaved_since is None:
            self.unsaved_since = now
        if self.unsent_since is None:
            self.unsent_since = now


class HistoryConfigMaps:
    """The ConfigMaps of one part, in its own namespace."""

    def __init__(
        self, api: Api, namespace: str, part: str, *, gap_s: float = 5.0, gather_s: float = 0.2
    ) -> None:
        """A shard is written ``gather_s`` after a change, and then at most every ``gap_s``; a
        small one more often, because what waits is forgotten when the leader is killed.
        """
        self._api = api
        self._namespace = namespace
        self._part = part
        self._gap_s = gap_s
        self._gather_s = gather_s
        self._count = FEWEST
        self._shards: dict[int, _Shard] = {}
        self._left_out: set[str] = set()  # objects whose history is too long to be stored
        self._changed = asyncio.Event()

    async def load(self) -> dict[Key, HistoryRecord]:
        """Return everything stored, and start from it; what cannot be read is left
        out and logged.

        Raises ``KubeError`` when they cannot be listed.
        """
        answer = await self._api.request(
            "GET",
            CONFIG_MAPS.path(self._namespace),
            query={"labelSelector": f"{LABEL}={self._part}"},
            timeout_s=_TIMEOUT_S,
        )
        try:
            config_maps = decode(answer.body, ListOf[ConfigMap]).items or []
        except msgspec.DecodeError as error:
            raise KubeError(f"not a list of ConfigMaps: {error}") from error
        # What an earlier term of ours knew, another leader may have changed since.
        self._count = FEWEST
        self._shards.clear()
        self._left_out.clear()
        found: dict[str, HistoryRecord] = {}
        moved: list[tuple[int, str]] = []
        for stored in config_maps:
            text = stored.metadata.name.removeprefix(self._name(""))
            if not text.isdecimal():
                continue
            number = int(text)
            self._shard(number).version = stored.metadata.resource_version
            records = history_records(stored)
            for key, record in records.items():
                # Two shards tell of one object only when their number was being doubled.
                if key not in found or found[key].at < record.at:
                    found[key] = record
                moved.append((number, key))
        while self._count <= max(self._shards, default=0) and self._count < MOST:
            self._count *= 2
        for key, record in found.items():
            if line := self._line(key, record):
                self._shard(self._number(key)).lines[key] = line
        for number, key in moved:
            if self._number(key) != number:
                self._soil(number, self._number(key))
        return {(*key.partition("/")[::2],): record for key, record in found.items()}

    def put(self, key: Key, record: HistoryRecord | None) -> None:
        """Change the history of one object, or forget it (None); ``run`` writes it."""
        text = "/".join(key)
        number = self._number(text)
        shard = self._shard(number)
        line = b""
        if record is None:
            self._left_out.discard(text)
        else:
            line = self._line(text, record)
        if line:
            shard.lines[text] = line
        elif shard.lines.pop(text, None) is None:
            return
        shard.note_change(asyncio.get_running_loop().time())
        # Those that it was split off from hold it as well, until it is stored.
        self._soil(number, *(() if shard.version else _ancestors(number)))

    def unsaved_s(self, now: float) -> float:
        """Return the age of the oldest change that is not stored yet, 0 where all are, at
        ``now`` (the loop's time)."""
        shards = list(self._shards.values())  # a scrape runs in another thread
        since = [at for shard in shards if (at := shard.unsaved_since) is not None]
        return max(now - min(since, default=now), 0.0)

    async def run(self) -> None:
        """Write what changed, for ever."""
        now = asyncio.get_running_loop().time
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._gather_s)
            self._changed.clear()
            at = now()
            due = [number for number in self._waiting() if self._is_due(self._shard(number), at)]
            for number in due:
                self._shard(number).written_at = at
            await self._flush_all(due)
            if self._waiting():
                self._changed.set()

    async def flush(self) -> None:
        """Write everything that waits, once; at the end of a term."""
        count = 0
        while count != self._count:  # one that outgrows its ConfigMap waits to be written as two
            count = self._count
            await self._flush_all(self._waiting())

    def _waiting(self) -> list[int]:
        """Return what is to be written, those that others were split off from first. Shards
        beyond the count (stored when there were more) come when all that stood in them stands
        elsewhere."""
        dirty = sorted(number for number, shard in self._shards.items() if shard.is_dirty)
        return [number for number in dirty if number < self._count] or dirty

    def _is_due(self, shard: _Shard, now: float) -> bool:
        if shard.refusal is not None:
            return now >= shard.refusal.until
        share = min(shard.size / _FULL_GAP_BYTES, 1.0)
        gap_s = max(self._gap_s * share, min(self._gap_s, _SHORTEST_GAP_S))
        return now - shard.written_at >= gap_s

    async def _flush_all(self, shards: Sequence[int]) -> None:
        """Write shards, a few at a time; however it ends, none of them is left on its way."""
        for first in range(0, len(shards), _TOGETHER):
            some = shards[first : first + _TOGETHER]
            for ended in await asyncio.gather(*map(self._flush, some), return_exceptions=True):
                if isinstance(ended, BaseException):
                    raise ended

    async def _flush(self, number: int) -> None:
        shard = self._shard(number)
        shard.is_dirty = False
        body = _body(shard.lines)
        shard.size = len(body)
        if self._is_too_large(shard):
            self._double()
            return
        sent = [shard, *(guests := self._guests(number))]
        if guests:
            lines = dict(shard.lines)
            for each in guests:
                lines |= each.lines
            body = _body(lines)
        for each in sent:
            each.unsent_since = None
        is_written = False
        try:
            await self._write(number, body)
            is_written = True
            shard.refusal = None
            for each in sent:
                each.unsaved_since = each.unsent_since
        except NotLeading:
            raise
        except (KubeError, msgspec.DecodeError) as error:
            self._refused(number, error)
        finally:
            # Cancelled in the middle, too: the end of the term writes what waits.
            shard.is_dirty = shard.is_dirty or not is_written

    def _refused(self, number: int, error: Exception) -> None:
        shard = self._shard(number)
        before = shard.refusal
        reason = type(error).__name__
        pause_s = _PAUSE_S if before is None else min(before.pause_s * 2, _PAUSE_MAX_S)
        asked_s = 0.0
        if isinstance(error, ApiError):
            reason = f"{error.status} {error.reason}"  # the text may tell another number each time
            asked_s = min(error.retry_after_s or 0.0, _PAUSE_MAX_S)
        until = asyncio.get_running_loop().time() + max(pause_s, asked_s)
        shard.refusal = _Refusal(reason, pause_s, until)
        if before is None or before.reason != reason:
            _log.warning("history not written, trying on", shard=number, error=str(error))

    async def _write(self, number: int, body: bytes) -> None:
        path = CONFIG_MAPS.path(self._namespace, self._name(number))
        shard = self._shard(number)
        for _ in range(3):
            version = shard.version
            try:
                answer = await self._api.request(
                    "PUT" if version else "POST",
                    path if version else CONFIG_MAPS.path(self._namespace),
                    body=self._object(number, body, version),
                    timeout_s=_TIMEOUT_S,
                )
            except (WriteConflict, ObjectNotFound):
                # Of an earlier leader's last write, or deleted by hand: we lead, ours counts.
                shard.version = await self._stored_version(path)
                continue
            shard.version = decode(answer.body, PartialObjectMetadata).metadata.resource_version
            if not version:
                self._soil(*_ancestors(number))  # they have held what is here now
            return
        raise KubeError(f"ConfigMap {self._name(number)} keeps changing; who else writes it?")

    async def _stored_version(self, path: str) -> str:
        try:
            answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
        except ObjectNotFound:
            return ""
        return decode(answer.body, PartialObjectMetadata).metadata.resource_version

    def _object(self, number: int, body: bytes, version: str) -> bytes:
        metadata: dict[str, object] = {
            "name": self._name(number),
            "namespace": self._namespace,
            "labels": {LABEL: self._part},
        }
        if version:
            metadata["resourceVersion"] = version
        packed = {_FIELD: gzip.compress(body, _LEVEL, mtime=0)}
        return encode(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": packed}
        )

    def _guests(self, number: int) -> list[_Shard]:
        """Return shards that were split off from this one, or from those that were, and are not
        stored yet: so long nothing of them stands anywhere else."""
        found = [
            shard
            for other, shard in self._shards.items()
            if not shard.version and number in _ancestors(other)
        ]
        size = sum(len(line) for shard in found for line in shard.lines.values())
        # What would make the API server refuse our own lines as well stays out.
        return found if size <= _MOST_GUESTS_BYTES else []

    def _is_too_large(self, shard: _Shard) -> bool:
        """Whether a shard is to be split."""
        if shard.size <= LARGEST_BYTES or self._count >= MOST:
            return False
        longest = max(map(len, shard.lines.values()))
        return longest <= _LONG_BYTES or shard.size - longest > LARGEST_BYTES

    def _line(self, key: str, record: HistoryRecord) -> bytes:
        """Return the line of an object, nothing where it is too long to be stored."""
        line = encode(key) + b":" + encode(record)
        if len(line) <= LARGEST_BYTES:
            self._left_out.discard(key)
            return line
        if key not in self._left_out:
            self._left_out.add(key)
            _log.warning(
                "history left out: too long to be stored, a new leader starts without it",
                autoscaler=key,
                bytes=len(line),
                most_bytes=LARGEST_BYTES,
            )
        return b""

    def _double(self) -> None:
        self._count *= 2
        lines = [item for shard in self._shards.values() for item in shard.lines.items()]
        unsaved = (shard.unsaved_since for shard in self._shards.values())
        since = min((at for at in unsaved if at is not None), default=None)
        for shard in self._shards.values():
            shard.lines = {}
        for key, line in lines:
            self._shard(self._number(key)).lines[key] = line
        for number in range(self._count):
            self._shard(number).unsaved_since = since
        self._soil(*range(self._count))

    def _soil(self, *numbers: int) -> None:
        """Have shards written."""
        for number in numbers:
            self._shard(number).is_dirty = True
            self._changed.set()

    def _shard(self, number: int) -> _Shard:
        return self._shards.get(number) or self._shards.setdefault(number, _Shard({}))

    def _number(self, key: str) -> int:
        return zlib.crc32(key.encode()) % self._count

    def _name(self, shard: int | str) -> str:
        return f"podscale-{self._part}-history-{shard}"


def _body(texts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",\n".join([texts[key] for key in sorted(texts)]) + b"}"


def _ancestors(shard: int) -> list[int]:
    """Return the shards that this one was split off from, the nearest first."""
    found = []
    while shard >= FEWEST:
        step = FEWEST
        while 2 * step <= shard:
            step *= 2
        shard -= step
        found.append(shard)
    return found


def history_records(stored: ConfigMap) -> dict[str, HistoryRecord]:
    """Return what can be read of a shard: what is wrong with one object's is its own."""
    packed, name = (stored.binary_data or {}).get(_FIELD, b""), stored.metadata.name
    found: dict[str, HistoryRecord] = {}
    try:
        lines = _LINES.decode(_unpacked(packed))
    except (zlib.error, *_UNREADABLE) as error:
        _log.warning("history not readable", name=name, error=str(error))
        return found
    for key, line in lines.items():
        try:
            found[key] = _RECORD.decode(line)
        except _UNREADABLE as error:
            _log.warning("history not readable", name=name, key=key, error=str(error))
    return found


def _unpacked(packed: bytes) -> bytes:
    """Return the text of a shard; raises ``zlib.error``."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    text = unpacker.decompress(packed, MOST_READ_BYTES)
    if not unpacker.eof:
        raise zlib.error(f"cut short, or of more than {MOST_READ_BYTES} bytes")
    return text
