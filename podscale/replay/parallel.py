"""One function over many jobs: on the cores of this machine, or on a Dask cluster.

What comes of them comes in the order of the jobs, and does not depend on who does them. Jobs are
taken as they are needed: a thousand histories at once would be gigabytes. Who dies while at a job
is replaced, and the job done again; where that happens again it is the job's own failure.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import Any, Generic, Literal, TypeVar

from podscale.replay.inputs import ReplayError

S = TypeVar("S")
J = TypeVar("J")
R = TypeVar("R")

_AHEAD = 2  # jobs for each worker that are given out and not yet back
_DIED = "a process that replays was ended, twice: is there enough memory?"


def cores() -> int:
    """Return how many processes can work at once."""
    return len(os.sched_getaffinity(0))


def over_cores(
    work: Callable[[S, J], R],
    shared: S,
    jobs: Iterable[J],
    workers: int,
    start: Literal["fork", "spawn"] = "fork",
) -> Iterator[R | ReplayError]:
    """Yield what ``work`` returns for each job, or why there is nothing.

    ``fork`` shares ``shared`` without a copy, and wants a process without threads.
    """
    pool = _Pool(work, shared, workers, start)
    waiting: deque[tuple[J, Future[R]]] = deque()

    def first() -> R | ReplayError:
        job, future = waiting.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            again = [each for each, _ in waiting]
            waiting.clear()
            pool.renew(1)  # alone, so that nobody else suffers from it
            try:
                return pool.submit(job).result()
            except BrokenProcessPool:
                return ReplayError(_DIED)
            finally:
                pool.renew(workers)
                waiting.extend((each, pool.submit(each)) for each in again)

    try:
        for job in jobs:
            waiting.append((job, pool.submit(job)))
            if len(waiting) >= _AHEAD * workers:
                yield first()
        while waiting:
            yield first()
    finally:
        pool.end()


def over_dask(
    work: Callable[[S, J], R], shared: S, jobs: Iterable[J], address: str
) -> Iterator[R | ReplayError]:
    """Yield what ``over_cores`` does, done by the workers of the scheduler at ``address``."""
    try:
        from distributed import Client
    except ImportError:
        raise ReplayError("--dask needs Dask: pip install 'podscale[dask]'") from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise ReplayError(f"--dask {address}: no scheduler answers: {error}") from None
    waiting: deque[Any] = deque()

    def first() -> R | ReplayError:
        future = waiting.popleft()
        error = future.exception()
        if error is None:
            found: R = future.result()
            return found
        return error if isinstance(error, ReplayError) else ReplayError(f"--dask: {error}")

    with client:
        common = client.scatter(shared, broadcast=True, hash=False)
        for job in jobs:
            waiting.append(client.submit(work, common, job, pure=False))
            if len(waiting) >= _AHEAD * max(1, sum(client.nthreads().values())):
                yield first()
        while waiting:
            yield first()


class _Pool(Generic[S, J, R]):
    # Processes that have ``shared`` before their first job.
    def __init__(
        self, work: Callable[[S, J], R], shared: S, workers: int, start: Literal["fork", "spawn"]
    ) -> None:
        self._given = work, shared
        self._start = start
        self._executor = self._started(workers)

    def submit(self, job: J) -> "Future[R]":
        # An interruption between a fork and its note would leave a child that nobody ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._executor.submit(_done, job)
        except BrokenProcessPool as broken:  # another job's worker has died just now
            lost: Future[R] = Future()
            lost.set_exception(broken)
            return lost
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def renew(self, workers: int) -> None:
        self.end()
        self._executor = self._started(workers)

    def end(self) -> None:
        for child in active_children():  # of an interrupted replay some are still at it
            child.terminate()
        self._executor.shutdown(cancel_futures=True)

    def _started(self, workers: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(workers, get_context(self._start), _begin, self._given)


_given: list[Any] = []  # of a child process: the work, and what its jobs share


def _begin(work: Callable[[S, J], R], shared: S) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    _given[:] = work, shared


def _done(job: Any) -> Any:
    work, shared = _given
    return work(shared, job)
