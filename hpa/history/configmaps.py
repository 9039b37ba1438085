r"""Histories in ConfigMaps: as many as they fill, each far below etcd's limit.

Compressed, a write costs the API server and etcd 3.4 ms, as text 7.5, and the etcd of a cluster
with thousands of autoscalers keeps a quarter of the bytes. To read one:
``kubectl get cm podscale-hpa-history-0 -o jsonpath='{.binaryData.history\.json\.gz}' |
base64 -d | gunzip``.
"""

import asyncio
import gzip
import zlib
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct, field

from hpa.cluster.record import Key
from hpa.history.history import HistoryRecord
from podscale.core.json_decoder import JsonDecoder
from podscale.kube.client import errors
from podscale.kube.client.api import Api
from podscale.kube.client.resource import CONFIG_MAPS
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode, encode
from podscale.kube.objects.cluster import ConfigMap

_log = structlog.get_logger()
LABEL = "podscale.io/history"
FEWEST = 2  # each write costs the API server 2 ms, however small it is
LARGEST_BYTES = 200 * 1024  # as text; packed and in base64 it is a third of that
_FULL_GAP_BYTES = 128 * 1024  # a larger shard keeps the whole gap: some 1,000 autoscalers in all
_GATHER_S, _SHORTEST_GAP_S = 0.2, 0.5
MOST_READ_BYTES = 4 * 1024 * 1024  # as text; a ConfigMap takes 1 MiB, packed
_FIELD = "history.json.gz"
_BETWEEN = b",\n"
# Packs 40 KB to a quarter of it in a quarter of a millisecond; better takes three times as long.
_LEVEL = 1
_TOGETHER = 8  # one by one they would cost the API server twice as much
_TIMEOUT_S = 10.0
_PAUSE_S = 1.0  # after a write that was refused, doubled ...
_PAUSE_MAX_S = 30.0  # ... up to this, whatever a Retry-After asks for
_LINES = JsonDecoder(dict[str, msgspec.Raw])
_RECORD = JsonDecoder(HistoryRecord)
_REFUSED = (errors.KubeError, msgspec.DecodeError)


class _Refusal(Struct, frozen=True):
    """Why a shard could not be written, and when to try again."""

    reason: str  # the kind of it: what a warning is given for once
    pause_s: float
    until: float


class _Shard(Struct, eq=False):
    """One ConfigMap. Times are the loop's."""

    number: int
    lines: dict[str, bytes] = field(default_factory=dict)  # by object
    size: int = 0  # bytes of text
    version: str = ""  # resourceVersion; "": it is not stored
    written_at: float = float("-inf")
    refusal: _Refusal | None = None
    unsaved_since: float | None = None  # since when it has had changes that are not stored ...
    unsent_since: float | None = None  # ... and that the write under way does not hold

    def put(self, key: str, line: bytes) -> None:
        """Have the line of one object; b"": have none."""
        if (before := self.lines.pop(key, None)) is not None:
            self.size -= len(before) + len(_BETWEEN)
        if line:
            self.lines[key] = line
            self.size += len(line) + len(_BETWEEN)

    def note_change(self, since: float) -> None:
        """Note that there is something to be stored."""
        self.unsaved_since = since if self.unsaved_since is None else self.unsaved_since
        self.unsent_since = since if self.unsent_since is None else self.unsent_since

    @property
    def is_too_large(self) -> bool:
        """Whether some of its lines are to stand in another ConfigMap."""
        return self.size > LARGEST_BYTES and len(self.lines) > 1

    def half(self) -> dict[str, bytes]:
        """Return lines for another one: the shortest, of half a ConfigMap together."""
        found: dict[str, bytes] = {}
        size = 0
        for key, line in sorted(self.lines.items(), key=lambda item: len(item[1])):
            with_it = size + len(line) + len(_BETWEEN)
            if found and (size >= LARGEST_BYTES // 2 or with_it > LARGEST_BYTES):
                break
            found[key] = line
            size = with_it
        return found

    def body(self) -> bytes:
        return b"{" + _BETWEEN.join([self.lines[key] for key in sorted(self.lines)]) + b"}"


class HistoryConfigMaps:
    """The ConfigMaps of one part, in its own namespace."""

    def __init__(self, api: Api, namespace: str, part: str, *, gap_s: float = 5.0) -> None:
        """A shard is written soon after a change, and then at most every ``gap_s``; a
        small one more often, because what waits is forgotten when the leader is killed.
        """
        self._api = api
        self._namespace = namespace
        self._part = part
        self._gap_s = gap_s
        self._shards = {number: _Shard(number) for number in range(FEWEST)}
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
            raise errors.KubeError(f"not a list of ConfigMaps: {error}") from error
        # What an earlier term of ours knew, another leader may have changed since.
        self._shards = {number: _Shard(number) for number in range(FEWEST)}
        self._left_out.clear()
        found: dict[str, HistoryRecord] = {}
        homes: dict[str, _Shard] = {}
        for stored in config_maps:
            text = stored.metadata.name.removeprefix(self._name(""))
            if not text.isdecimal():
                continue
            shard = self._shards.setdefault(int(text), _Shard(int(text)))
            shard.version = stored.metadata.resource_version
            for key, record in history_records(stored).items():
                # Two tell of one object where a leader ended while its line was moved.
                if key in found:
                    older = shard if found[key].at >= record.at else homes[key]
                    older.put(key, b"")
                    older.note_change(asyncio.get_running_loop().time())
                    self._changed.set()
                    if older is shard:
                        continue
                found[key], homes[key] = record, shard
                shard.put(key, self._line(key, record))
        return {(*key.partition("/")[::2],): record for key, record in found.items()}

    def put(self, key: Key, record: HistoryRecord | None) -> None:
        """Change the history of one object, or forget it (None); ``run`` writes it."""
        text = "/".join(key)
        line = b""
        if record is None:
            self._left_out.discard(text)
        else:
            line = self._line(text, record)
        shards = self._shards.values()
        home = next((shard for shard in shards if text in shard.lines), None)
        if home is None:
            if not line:
                return
            home = min(shards, key=lambda shard: shard.size)
        home.put(text, line)
        home.note_change(asyncio.get_running_loop().time())
        self._changed.set()

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
            await asyncio.sleep(_GATHER_S)
            self._changed.clear()
            at = now()
            due = [shard for shard in self._waiting() if self._is_due(shard, at)]
            for shard in due:
                shard.written_at = at
            await self._flush_all(due)
            if self._waiting():
                self._changed.set()

    async def flush(self) -> None:
        """Write everything that waits, once; at the end of a term."""
        await self._flush_all(self._waiting())

    def _waiting(self) -> list[_Shard]:
        return [shard for shard in self._shards.values() if shard.unsent_since is not None]

    def _is_due(self, shard: _Shard, now: float) -> bool:
        if shard.refusal is not None:
            return now >= shard.refusal.until
        share = min(shard.size / _FULL_GAP_BYTES, 1.0)
        gap_s = max(self._gap_s * share, min(self._gap_s, _SHORTEST_GAP_S))
        return now - shard.written_at >= gap_s

    async def _flush_all(self, shards: Sequence[_Shard]) -> None:
        """Write shards, a few at a time; however it ends, none of them is left on its way."""
        for shard in shards:
            try:
                await self._split(shard)
            except _REFUSED as error:  # all of it is written where it stands
                self._refused(shard, error)
        for first in range(0, len(shards), _TOGETHER):
            some = shards[first : first + _TOGETHER]
            for ended in await asyncio.gather(*map(self._flush, some), return_exceptions=True):
                if isinstance(ended, BaseException):
                    raise ended

    async def _split(self, shard: _Shard) -> None:
        """Move lines to new ConfigMaps until it fits; raises one of ``_REFUSED``.

        A line stands where it stood until its new ConfigMap is stored.
        """
        while shard.is_too_large:
            new, moved = _Shard(max(self._shards) + 1), shard.half()
            for key, line in moved.items():
                new.put(key, line)
            await self._write(new)
            new.written_at = shard.written_at
            self._shards[new.number] = new
            for key, line in moved.items():
                newest = shard.lines.get(key, b"")
                shard.put(key, b"")
                new.put(key, newest)
                if newest != line and shard.unsaved_since is not None:
                    new.note_change(shard.unsaved_since)

    async def _flush(self, shard: _Shard) -> None:
        shard.unsent_since = None
        try:
            await self._write(shard)
        except BaseException as error:
            # Cancelled in the middle, too: the end of the term writes what waits.
            shard.unsent_since = shard.unsaved_since
            if not isinstance(error, _REFUSED):
                raise
            self._refused(shard, error)
            return
        shard.unsaved_since = shard.unsent_since
        if not shard.is_too_large:
            shard.refusal = None

    def _refused(self, shard: _Shard, error: Exception) -> None:
        before = shard.refusal
        reason = type(error).__name__
        pause_s = _PAUSE_S if before is None else min(before.pause_s * 2, _PAUSE_MAX_S)
        asked_s = 0.0
        if isinstance(error, errors.ApiError):
            reason = f"{error.status} {error.reason}"  # the text may tell another number each time
            asked_s = min(error.retry_after_s or 0.0, _PAUSE_MAX_S)
        until = asyncio.get_running_loop().time() + max(pause_s, asked_s)
        shard.refusal = _Refusal(reason, pause_s, until)
        if before is None or before.reason != reason:
            _log.warning("history not written, trying on", shard=shard.number, error=str(error))

    async def _write(self, shard: _Shard) -> None:
        body, path = shard.body(), CONFIG_MAPS.path(self._namespace, self._name(shard.number))
        if len(body) > MOST_READ_BYTES:
            raise errors.KubeError(
                f"{len(body)} bytes of histories do not fit one ConfigMap: allow more of them "
                f"in namespace {self._namespace}"
            )
        for _ in range(3):
            version = shard.version
            try:
                answer = await self._api.request(
                    "PUT" if version else "POST",
                    path if version else CONFIG_MAPS.path(self._namespace),
                    body=self._object(shard.number, body, version),
                    timeout_s=_TIMEOUT_S,
                )
            except (errors.WriteConflict, errors.ObjectNotFound):
                # Of an earlier leader's last write, or deleted by hand: we lead, ours counts.
                shard.version = await self._stored_version(path)
                continue
            shard.version = decode(answer.body, PartialObjectMetadata).metadata.resource_version
            return
        raise errors.KubeError(
            f"ConfigMap {self._name(shard.number)} keeps changing; who else writes it?"
        )

    async def _stored_version(self, path: str) -> str:
        try:
            answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
        except errors.ObjectNotFound:
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

    def _name(self, number: int | str) -> str:
        return f"podscale-{self._part}-history-{number}"


def history_records(stored: ConfigMap) -> dict[str, HistoryRecord]:
    """Return what can be read of a shard: what is wrong with one object's is its own."""
    packed, name = (stored.binary_data or {}).get(_FIELD, b""), stored.metadata.name
    found: dict[str, HistoryRecord] = {}
    try:
        lines = _LINES.decode(_unpacked(packed))
    except (zlib.error, msgspec.DecodeError) as error:
        _log.warning("history not readable", name=name, error=str(error))
        return found
    for key, line in lines.items():
        try:
            found[key] = _RECORD.decode(line)
        except msgspec.DecodeError as error:
            _log.warning("history not readable", name=name, key=key, error=str(error))
    return found


def _unpacked(packed: bytes) -> bytes:
    """Return the text of a shard; raises ``zlib.error``."""
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    text = unpacker.decompress(packed, MOST_READ_BYTES)
    if not unpacker.eof:
        raise zlib.error(f"cut short, or of more than {MOST_READ_BYTES} bytes")
    return text
