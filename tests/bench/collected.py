"""``podscale`` with a stopwatch on its garbage collector, for the benches.

``python -m tests.bench.collected FILE hpa …`` runs ``podscale hpa …``; when ``FILE.ask``
appears it collects everything once and writes to FILE how much CPU time that took: so long does the
process stand still. ``python -m tests.bench.collected bare OBJECTS REFERENCES MB`` prints what the
same heap costs where there is nothing else: as many containers with as many references, they and
what they refer to in no order in the memory of so many MB, and none of it in a cache.
"""

import gc
import random
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import msgspec

_POLL_S = 0.2
_CROWD = 20  # containers out of the collector's sight, for each that it walks
_CACHES = 64 * 2**20  # bytes; more than a processor caches


class Collection(msgspec.Struct, frozen=True):
    """A full collection, and what it walked."""

    ms: float
    objects: int
    references: int


def collection(file: Path, deadline_s: float = 30.0) -> Collection:
    """Ask the process that watches ``file`` for a full collection."""
    file.with_suffix(".ask").touch()
    end = time.monotonic() + deadline_s
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody collects for {file.name}")
        time.sleep(_POLL_S)
    return msgspec.json.decode(file.read_bytes(), type=Collection)


def bare_pause_ms(like: Collection, mb: float) -> float:
    """Return the milliseconds of a full collection of such a heap in a bare process."""
    words = ("bare", like.objects, like.references, round(mb))
    command = [sys.executable, "-m", "tests.bench.collected", *map(str, words)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def _watch(file: Path) -> None:
    while not file.with_suffix(".ask").exists():
        time.sleep(_POLL_S)
    took_ms = _collected_ms()
    # Counted afterwards: counting fetches everything into the caches.
    walked = gc.get_objects()
    references = sum(len(gc.get_referents(each)) for each in walked)
    found = Collection(took_ms, len(walked), references)
    file.with_suffix(".new").write_bytes(msgspec.json.encode(found))
    file.with_suffix(".new").replace(file)


def _collected_ms() -> float:
    # CPU of this thread: how long others keep the core from it says nothing about the heap.
    began = time.thread_time()
    gc.collect()
    return (time.thread_time() - began) * 1e3


def _bare(objects: int, references: int, mb: int) -> None:
    each = max(0, mb * 10**6 // references - sys.getsizeof(b""))
    others = [bytes(each) for _ in range(references)]
    crowd: list[list[bytes]] = [[] for _ in range(_CROWD * objects)]
    gc.collect()
    gc.freeze()
    # A heap that has lived lies in no order: containers take the places of some that have gone.
    shuffle = random.Random(7).shuffle
    shuffle(others)
    shuffle(crowd)
    del crowd[:objects]
    ends = [references * number // objects for number in range(objects + 1)]
    heap = [others[first:last] for first, last in pairwise(ends)]
    del others
    bytearray(_CACHES).count(1)
    print(_collected_ms())
    del heap


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        _bare(*map(int, sys.argv[2:]))
    else:
        from podscale.cli.entry import main

        threading.Thread(target=_watch, args=(Path(sys.argv.pop(1)),), daemon=True).start()
        main()
