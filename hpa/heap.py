"""The process's memory: what the collector need not look at, what the kernel may have back."""

import ctypes
import gc
from collections.abc import Callable
from functools import cache


def settle() -> None:
    """Take what is there out of the collector's sight: it stays, and there is much of it."""
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Return free pages to the kernel: pages of lists and of Prometheus's answers, long read.

    glibc keeps those between pages in use; half a millisecond, and 10 where fifty thousand free
    pieces lie among others. Other C libraries do it themselves.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        return None  # a Python linked statically opens no library, nor does Windows' without a name
