"""``podscale`` with a stopwatch on its garbage collector, for the benches.

``python -m tests.bench.collected FILE hpa …`` runs ``podscale hpa …``; whenever ``FILE.ask``
appears it collects everything and writes to FILE how much CPU time that took: so long does the
process stand still. ``python -m tests.bench.collected FILE bare OBJECTS REFERENCES FREE MB`` does
the same with such a heap where there is nothing else: as many containers with as many references,
they and what they refer to in no order in the memory of so many MB, and as many free tuples, which
a full collection gives back. What it costs is above all what the processor's caches still hold
of the heap: both lie untouched for as long.
"""

import gc
import os
import random
import re
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import msgspec

_POLL_S = 0.2
_CROWD = 20  # containers out of the collector's sight, for each that it walks
_FREE = re.compile(r"^ *(\d+) free \d+-sized PyTupleObjects", re.MULTILINE)
_SIZES = 10  # of free tuples; of each size CPython keeps 2,000


class Collection(msgspec.Struct, frozen=True):
    """A full collection, and what it walked."""

    ms: float
    objects: int
    references: int
    free: int  # tuples that were kept for reuse when it was asked for the first time


def collection(file: Path, deadline_s: float = 30.0) -> Collection:
    """Ask the process that watches ``file`` for a full collection."""
    file.unlink(missing_ok=True)
    file.with_suffix(".ask").touch()
    end = time.monotonic() + deadline_s
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody collects for {file.name}")
        time.sleep(_POLL_S)
    return msgspec.json.decode(file.read_bytes(), type=Collection)


def _watch(file: Path, free: int | None = None) -> None:
    """Collect when asked, for ever; ``free``: make so many tuples free each time."""
    asked, kept = file.with_suffix(".ask"), free
    while True:
        time.sleep(_POLL_S)
        if not asked.exists():
            continue
        asked.unlink()
        if kept is None:
            kept = _free_tuples()  # once: it looks at all of the memory
        took_ms = _collected_ms()
        # Counted afterwards: counting fetches everything into the caches.
        walked = gc.get_objects()
        references = sum(len(gc.get_referents(each)) for each in walked)
        found = Collection(took_ms, len(walked), references, kept)
        del walked
        if free is not None:
            _free(free)
        file.with_suffix(".new").write_bytes(msgspec.json.encode(found))
        file.with_suffix(".new").replace(file)


def _free_tuples() -> int:
    """Return how many tuples CPython keeps for reuse, which it tells on stderr only."""
    with tempfile.TemporaryFile() as told:
        stderr = os.dup(2)
        os.dup2(told.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(stderr, 2)
        os.close(stderr)
        told.seek(0)
        return sum(map(int, _FREE.findall(told.read().decode())))


def _free(tuples: int) -> None:
    made = [tuple([None] * (1 + number % _SIZES)) for number in range(tuples)]
    del made


def _collected_ms() -> float:
    # CPU of this thread: how long others keep the core from it says nothing about the heap.
    began = time.thread_time()
    gc.collect()
    return (time.thread_time() - began) * 1e3


def _bare(objects: int, references: int, free: int, mb: int) -> list[list[bytes]]:
    references -= objects  # the list of them all refers to each
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
    _free(free)
    return heap


if __name__ == "__main__":
    watched = Path(sys.argv.pop(1))
    if sys.argv[1] == "bare":
        objects, references, free, mb = map(int, sys.argv[2:])
        heap = _bare(objects, references, free, mb)
        _watch(watched, free)
    else:
        from podscale.cli.entry import main

        threading.Thread(target=_watch, args=(watched,), daemon=True).start()
        main()
