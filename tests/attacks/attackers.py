"""Everybody who attacks a port, together: a process of its own, on and off as it is told.

Each kind of attacker sends so many times a second and no more, and the process is the nicest of
the machine: what is tried is what an attack costs us, not that attackers share our two cores.
The two attacks of the ring that are not here have nothing to do with a port of a deployment: web
pages (the demo) and secrets (messages).
"""

import contextlib
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from tests.attacks.http_mutations import mutated
from tests.attacks.memory_stage import Attacker
from tests.attacks.siege_objects import EVIL, hostile
from tests.attacks.tenant_requests import Tenant, target
from tests.attacks.test_memory import PROXIED, STRANGERS, TENANTS
from tests.cluster.identity import Client, Identity
from tests.tools.process import LOOPBACK

HELD = 100  # connections of each kind that are kept open
STANDING = 6  # objects that are left standing at a time
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01"  # a handshake that never goes on
_TAKES_S = 2.0  # what a stranger waits for an answer to garbage


class Victims(msgspec.Struct, frozen=True):
    """Whom to attack, and what a tenant has to do it with."""

    adapter: int  # ports
    admission: int
    hpa: int
    api: int  # of the API server
    api_ca: str  # a file
    writer: str  # a token that writes in the tenant's namespace
    token: str  # of the tenant
    proxy: tuple[str, str]  # files of the front proxy's certificate and key
    tenant: Tenant
    reviews: Sequence[str]  # bodies for the webhook

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports."""
        return (self.adapter, self.admission, self.hpa)


class _Proxy(msgspec.Struct, frozen=True):
    """The front proxy's certificate."""

    files: tuple[str, str]

    def configure_cert(self, ctx: ssl.SSLContext) -> None:
        ctx.load_cert_chain(*self.files)


class Attackers:
    """The process, from the side of the test; a context manager."""

    def __init__(self, victims: Victims) -> None:
        self._victims = victims

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.attackers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._tell(msgspec.json.encode(self._victims).decode())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def attack(self, attacks: bool) -> None:
        """Attack from now on, or no longer."""
        self._tell("attack" if attacks else "calm")

    def counts(self) -> Mapping[str, int]:
        """End it; how often each kind attacked."""
        out, _ = self._process.communicate(timeout=60)
        counts: dict[str, int] = json.loads(out)
        return counts

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def _long_requests(
    kinds: Mapping[str, Callable[[int, str], bytes]],
    ports: Sequence[int],
    token: str,
    proxy: _Proxy | None = None,
) -> Iterator[None]:
    """Send what test_memory.py sends, over kept connections."""
    clients = [Attacker(port, proxy) for port in ports]
    for number, kind in enumerate(itertools.cycle(kinds.values())):
        client = clients[number % len(clients)]
        try:
            client.send(kind(number, token))
        except (OSError, AssertionError):
            client.close()
        yield


def _spellings(victims: Victims) -> Iterator[None]:
    """Ask for another tenant's metrics, directly and through the aggregator."""
    random = Random(1)
    for client in itertools.cycle([Attacker(victims.adapter), Attacker(victims.api)]):
        _get(client, victims, target(random, victims.tenant))
        yield


def _evil_metric(victims: Victims) -> Iterator[None]:
    """Ask for what Prometheus lies about."""
    namespace = victims.tenant.own
    path = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/*/{EVIL}"
    client = Attacker(victims.adapter)
    for number in itertools.count():
        _get(client, victims, f"{path}?metricLabelSelector=a={number}")
        yield


def _get(client: Attacker, victims: Victims, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {victims.token}\r\n\r\n"
    try:
        client.send(head.encode("latin-1", "replace"))
    except (OSError, AssertionError, StopIteration):  # the last: an answer of no length
        client.close()


def _objects(victims: Victims) -> Iterator[None]:
    """Create hostile objects through the API server, and delete each a little later."""
    writer = Identity("writer", victims.api, Path(victims.api_ca), token=victims.writer)
    client = Client(writer)
    standing: list[str] = []
    for path, made in hostile(victims.tenant.own):
        with contextlib.suppress(OSError, ValueError):
            if client.request("POST", path, made).status < 400 and "dryRun" not in path:
                standing.append(f"{path}/{made['metadata']['name']}")
            if len(standing) > STANDING:
                client.request("DELETE", standing.pop(0))
        yield


def _malformed(victims: Victims) -> Iterator[None]:
    """Send what is no HTTP, each on a connection of its own."""
    for port, stream in zip(itertools.cycle(victims.ports), mutated(1), strict=False):
        with contextlib.suppress(OSError), _connected(port) as connection:
            connection.sendall(stream)
            connection.settimeout(0.2)
            connection.recv(65536)
        yield


def _half_handshakes(victims: Victims) -> Iterator[None]:
    """Begin a handshake and keep the connection."""
    held: list[socket.socket] = []
    for port in itertools.cycle(victims.ports):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((LOOPBACK, port), timeout=_TAKES_S))
            held[-1].sendall(_HELLO)
        _let_go(held)
        yield


def _drips(victims: Victims) -> Iterator[None]:
    """Send CR and LF in turn over many connections, a byte each time."""
    held: list[ssl.SSLSocket] = []
    for number, port in enumerate(itertools.cycle(victims.ports)):
        if number % 2:
            with contextlib.suppress(OSError):
                held.append(_connected(port))
        _let_go(held)
        for connection in list(held[:: max(len(held) // 10, 1)]):
            try:
                connection.sendall(b"\r\n"[number % 2 :][:1])
            except OSError:
                held.remove(connection)
                connection.close()
        yield


def _reviews(victims: Victims) -> Iterator[None]:
    """Give the webhook pods that nobody has."""
    client = Attacker(victims.admission)
    for body in itertools.cycle(victims.reviews):
        raw = body.encode()
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        try:
            client.send(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        except (OSError, AssertionError):
            client.close()
        yield


def _let_go(held: list[Any]) -> None:
    while len(held) > HELD:
        held.pop(0).close()


def _connected(port: int) -> ssl.SSLSocket:
    tls = ssl._create_unverified_context()  # noqa: S323 - its certificate is not what is tried
    return tls.wrap_socket(socket.create_connection((LOOPBACK, port), timeout=_TAKES_S))


def _attackers(victims: Victims) -> Mapping[str, tuple[Iterator[None], float]]:
    """Return what each kind does, and how often in a second."""
    adapter = (victims.adapter,)
    return {
        "long requests of strangers": (_long_requests(STRANGERS, victims.ports, "x"), 20.0),
        "long requests of a tenant": (_long_requests(TENANTS, adapter, victims.token), 10.0),
        "long requests of a proxy": (
            _long_requests(PROXIED, adapter, "", _Proxy(victims.proxy)), 10.0,
        ),
        "spellings": (_spellings(victims), 20.0),
        "evil metric": (_evil_metric(victims), 5.0),
        "malformed": (_malformed(victims), 10.0),
        "half handshakes": (_half_handshakes(victims), 10.0),
        "drips": (_drips(victims), 10.0),
        "reviews": (_reviews(victims), 4.0),
        "objects": (_objects(victims), 2.0),
    }  # fmt: skip


def _let_others_go_first() -> None:
    # Linux may share the CPU among sessions first (autogroup); niceness counts within one.
    os.nice(19)
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/autogroup").write_text("19")


def main() -> None:
    """Read the victims, then ``attack`` or ``calm``, until the input ends."""
    _let_others_go_first()
    victims = msgspec.json.decode(sys.stdin.readline(), type=Victims)
    attacks, ends = threading.Event(), threading.Event()
    counts: dict[str, int] = {}

    def run(name: str, steps: Iterator[None], rate: float) -> None:
        counts[name] = 0
        while not ends.is_set():
            if attacks.wait(0.1):
                began = time.monotonic()
                next(steps)
                counts[name] += 1
                ends.wait(max(began + 1 / rate - time.monotonic(), 0.0))

    threads = [
        threading.Thread(target=run, args=(name, *of), daemon=True)
        for name, of in _attackers(victims).items()
    ]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        (attacks.set if line.strip() == "attack" else attacks.clear)()
    attacks.clear()
    ends.set()
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
