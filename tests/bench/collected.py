"""``podscale`` with a stopwatch on its garbage collector, for the benches.

``python -m tests.bench.collected FILE hpa …`` runs ``podscale hpa …``; when ``FILE.ask``
appears it collects everything once and writes to FILE how much CPU time that took: so long does the
process stand still.
"""

import gc
import sys
import threading
import time
from pathlib import Path

_POLL_S = 0.2


def pause_ms(file: Path, deadline_s: float = 30.0) -> float:
    """Ask the process that watches ``file`` for a full collection; return its milliseconds."""
    file.with_suffix(".ask").touch()
    end = time.monotonic() + deadline_s
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody collects for {file.name}")
        time.sleep(_POLL_S)
    return float(file.read_text())


def _watch(file: Path) -> None:
    while not file.with_suffix(".ask").exists():
        time.sleep(_POLL_S)
    # CPU of this thread: how long others keep the core from it says nothing about the heap.
    began = time.thread_time()
    gc.collect()
    took_ms = (time.thread_time() - began) * 1e3
    file.with_suffix(".new").write_text(f"{took_ms:.3f}")
    file.with_suffix(".new").replace(file)


if __name__ == "__main__":
    from podscale.cli.entry import main

    threading.Thread(target=_watch, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    main()
