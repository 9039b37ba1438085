"""Three readers of one stream of bytes: ours, h11 and Go's net/http."""

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import h11
import msgspec
from msgspec import Struct

from podscale.serving.http.parser import Parser
from podscale.serving.http.request import RequestRefusal
from tests.cluster.golang import FLAGS, Go, built_once

OURS = Path(__file__).parent / "go" / "httpreader"
RUN_S = 600.0


class Read(Struct, frozen=True):
    """One request that a reader took for whole."""

    method: str
    target: str
    body: bytes
    closes: bool  # no other one is read after it


class Reading(Struct, frozen=True):
    """What a reader makes of a stream whose other end has closed."""

    requests: Sequence[Read]
    status: str = ""  # with which the rest is refused; "": there is no rest, or it is cut short
    why: str = ""


def read_here(stream: bytes) -> Reading:
    """Return what our parser makes of it."""
    parser, found = Parser(), []
    parser.feed(stream)
    while (item := parser.next()) is not None:
        if isinstance(item, RequestRefusal):
            return Reading(found, str(item.status.code), item.status.message)
        found.append(Read(item.method, item.target, item.body, not item.keeps_alive))
        if not item.keeps_alive:
            break
    return Reading(found)


def read_by_h11(stream: bytes) -> Reading:
    """Return what h11 makes of it."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(stream)
    found: list[Read] = []
    head: h11.Request | None = None
    body = bytearray()
    try:
        while True:
            event = reader.next_event()
            if isinstance(event, h11.Request):
                head, body = event, bytearray()
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                reader.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                reader.send(h11.EndOfMessage())
                closes = reader.our_state is not h11.DONE
                method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
                found.append(Read(method, target, bytes(body), closes))
                if closes:
                    return Reading(found)
                reader.start_next_cycle()
            elif event is h11.PAUSED:
                # CONNECT and Upgrade: it waits for the other protocol.
                return Reading(found, "400", "another protocol")
            else:
                return Reading(found)
    except h11.RemoteProtocolError as error:
        return Reading(found, str(error.error_status_hint), str(error))


class _GoRead(Struct):
    method: str
    target: str
    body: bytes | None  # encoding/json writes [] of bytes as base64, and null
    closes: bool


class _GoReading(Struct):
    requests: list[_GoRead]
    status: str
    why: str


def read_by_go(streams: Sequence[bytes]) -> list[Reading]:
    """Return what net/http makes of each; skip where there is no Go."""
    done = subprocess.run(
        [_program()], input=b"".join(base64.b64encode(one) + b"\n" for one in streams),
        timeout=RUN_S, capture_output=True, check=True,
    )  # fmt: skip
    told = [msgspec.json.decode(line, type=_GoReading) for line in done.stdout.splitlines()]
    assert len(told) == len(streams)
    return [
        Reading(
            [
                Read(each.method, each.target, each.body or b"", each.closes)
                for each in one.requests
            ],
            one.status[:3],
            one.why,
        )
        for one in told
    ]


def _program() -> Path:
    sources = {file.name: file.read_bytes() for file in OURS.iterdir()}

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "httpreader.bin", ".")
        return go.scratch / "httpreader.bin"

    return built_once("httpreader", sources, build)
