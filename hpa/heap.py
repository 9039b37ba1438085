"""The process's memory: what the collector need not look at, what the kernel may have back."""

import ctypes
import gc


def settle() -> None:
    """Take what is there out of the collector's sight: it stays, and there is much of it."""
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Return free pages to the kernel: pages of lists and of Prometheus's answers, long read.

    glibc keeps those between pages in use; half a millisecond. Other C libraries do it themselves.
    """
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
