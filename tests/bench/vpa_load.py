"""Reviews at a steady rate over TLS: latencies from when each was due, whatever came before."""

import asyncio
import ssl
import time
from collections.abc import Sequence

_CONNECTIONS = 16


async def post(port: int, path: str, bodies: Sequence[bytes], rate: float, seconds: float,
               until: asyncio.Event | None = None) -> list[float]:  # fmt: skip
    """Return seconds per answer, sorted; ``until`` ends it early."""
    tls = _tls()
    took: list[float] = []
    begin = time.monotonic() + 0.2

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            for turn in range(number, int(rate * seconds), _CONNECTIONS):
                if until is not None and until.is_set():
                    return
                due = begin + turn / rate
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                await _exchange(reader, writer, path, bodies[turn % len(bodies)])
                took.append(time.monotonic() - due)
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(_CONNECTIONS):
            group.create_task(one(number))
    return sorted(took)


async def ask(port: int, path: str, body: bytes) -> bytes:
    """Return one answer's body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_tls())
    try:
        return await _exchange(reader, writer, path, body)
    finally:
        writer.close()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(answer.decode())
    length = answer.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    return await reader.readexactly(int(length))


def _tls() -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def p99(took: Sequence[float]) -> float:
    return took[int(len(took) * 0.99)]
