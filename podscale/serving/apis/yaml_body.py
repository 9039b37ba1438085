"""JSON bodies as YAML, which takes the event loop 0.2 ms a kilobyte.

A list of 10,000 pods would be two seconds: large bodies are made a few items at a time.
"""

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from podscale.core.json_decoder import decode_json

AT_ONCE = 8 * 1024  # bytes of JSON, less than two milliseconds
_REST_S = 0.001  # a process that rests now and then is woken at once on a busy machine, too


def whole(body: bytes) -> bytes:
    """Return JSON ``body`` as YAML. Raises ``msgspec.DecodeError`` for other bytes."""
    return _dumped(decode_json(body))


async def made(body: bytes, *, turn: asyncio.Lock) -> bytes:
    """Return the same as ``whole``, with rests. ``turn`` is taken for each: many at once would
    need the loop as long as one does without rests."""
    found = bytearray()
    async with turn:
        for piece in pieces(body):
            found += piece
            await asyncio.sleep(_REST_S)
    return bytes(found)


def pieces(body: bytes, at_once: int = AT_ONCE) -> Iterator[bytes]:
    """Yield what ``whole`` returns, of about ``at_once`` bytes of JSON each.

    Only lists right below the top are cut, which is where Kubernetes has its items.
    """
    if not body.lstrip().startswith(b"{"):
        yield whole(body)
        return
    fields = decode_json(body, dict[str, msgspec.Raw])
    if not fields:
        yield _dumped({})
    for name in sorted(fields):
        value = bytes(fields[name])
        items: list[msgspec.Raw] = []
        if len(value) > at_once and value.startswith(b"["):
            items = decode_json(value, list[msgspec.Raw])
        head = _dumped({name: [0]}).removesuffix(b"- 0\n")
        # Below a name so long that YAML gives it lines of its own, items are indented.
        if not items or not head.endswith(b":\n"):
            yield _dumped({name: decode_json(value)})
            continue
        yield head
        for portion in _portions(items, at_once):
            yield _dumped(portion)


def _portions(items: list[msgspec.Raw], at_once: int) -> Iterator[list[Any]]:
    portion: list[Any] = []
    size = 0
    for item in items:
        portion.append(decode_json(item))
        size += len(bytes(item))
        if size >= at_once:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _dumped(value: Any) -> bytes:
    # Imported on first use: YAML is for people and costs every other process 10 ms.
    import yaml

    dumped: str = yaml.dump(value, Dumper=_dumper(), allow_unicode=True, default_flow_style=False)
    return dumped.encode()


@lru_cache(maxsize=1)
def _dumper() -> Any:
    import yaml

    plain_text = "tag:yaml.org,2002:str"
    resolver: Any = yaml.resolver.Resolver()

    class Dumper(yaml.CSafeDumper):
        """Quotes as Go's yaml.v2: double, and only what would read as something else."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    def text(dumper: Dumper, data: str) -> yaml.ScalarNode:
        is_plain = resolver.resolve(yaml.ScalarNode, data, (True, False)) == plain_text
        return dumper.represent_scalar(plain_text, data, style=None if is_plain else '"')

    Dumper.add_representer(str, text)
    return Dumper
