"""Who only wants metrics: a process of its own, so that no time is the test's or an attack's.

Times are the machine's monotonic clock, which all processes share.
"""

import http.client
import multiprocessing
import ssl
import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus

from msgspec import Struct

from tests.tools.process import LOOPBACK

CONNECTIONS = 4


class Asks(Struct, frozen=True):
    """What to ask for, and how often."""

    port: int
    token: str
    paths: Sequence[str]
    holds: str  # a text that every answer has
    until: float
    rate: float = 0.0  # in a second, over all connections; 0: as fast as answers come


class Answers(Struct, frozen=True):
    """When each request was due, how long its answer took from then on, and what failed."""

    due: "array[float]"  # Python 3.11 evaluates no other
    took: "array[float]"
    failed: list[str]


@contextmanager
def asking() -> Iterator[ProcessPoolExecutor]:
    """Yield the process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield process


def ask(asks: Asks) -> Answers:
    """Ask over all connections until it is time; runs in the process."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        every: list[Future[Answers]] = [
            pool.submit(_ask, asks, number) for number in range(CONNECTIONS)
        ]
    whole = Answers(array("d"), array("d"), [])
    for each in every:
        found = each.result()
        whole.due.extend(found.due)
        whole.took.extend(found.took)
        whole.failed.extend(found.failed)
    return whole


def _ask(asks: Asks, number: int) -> Answers:
    # From when a request is due: who waits behind another waits too.
    tls = ssl._create_unverified_context()  # noqa: S323 - it is not its certificate that is tried
    connection = http.client.HTTPSConnection(LOOPBACK, asks.port, timeout=30, context=tls)
    headers = {"Authorization": f"Bearer {asks.token}"}
    answers = Answers(array("d"), array("d"), [])
    holds = asks.holds.encode()
    period_s = CONNECTIONS / asks.rate if asks.rate else 0.0
    due = time.monotonic() + period_s * number / CONNECTIONS
    while due < asks.until:
        time.sleep(max(due - time.monotonic(), 0.0))
        path = asks.paths[(number + len(answers.due)) % len(asks.paths)]
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != HTTPStatus.OK or holds not in body:
                answers.failed.append(f"{path}: {answer.status} {body[:300]!r}")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            answers.failed.append(f"{path}: {error!r}")
        now = time.monotonic()
        answers.due.append(due)
        answers.took.append(now - due)
        due = due + period_s if period_s else now
    connection.close()
    return answers
