"""Cuts a large Prometheus answer into pages while it arrives.

A body of 150 MB must be neither held nor decoded whole. Prometheus writes the entries of
an answer as a flat array of objects: ``},{"`` is a border between two of them unless its quote
ends a label value that somebody has called ``},{``. A server that puts blanks between entries is
read correctly too, only in one page.
"""

from collections.abc import Callable

import msgspec

from podscale.core.json_decoder import decode_json

PAGE_BYTES = 8 * 1024  # about 40 series of 200 bytes, an eighth of a millisecond
ENTRY_BYTES = 128 * 1024  # of one entry, where somebody is told of those that are longer

_BORDER = b'},{"'
_BEHIND_A_VALUE = frozenset(b",:}] \t\r\n")  # what follows a quote that ends a string
_FIRST = b"[{"
_WITHOUT_BLANKS = b'":['  # how Prometheus begins a list, and then writes all of it
_LAST = b'"}]'
_TAIL_BYTES = 64 * 1024  # holds what follows the entries: warnings
_MOST_TAILS = 64


class Splitter:
    """Takes chunks, gives pages: JSON arrays of whole entries."""

    def __init__(
        self, page_bytes: int = PAGE_BYTES, leave_out: Callable[[bytes], None] | None = None
    ) -> None:
        """``leave_out`` is given the beginning of each entry over ``ENTRY_BYTES``, which then is
        in no page; ``None``: every entry is.
        """
        self._page_bytes = page_bytes
        self._leave_out = leave_out
        self._head: bytes | None = None  # all before the first entry, with its bracket
        self._buffer = bytearray()
        self._searched = 0  # nothing begins before here: a long entry is not read again and again
        self._is_leaving_out = False  # the buffer is the end of an entry that is left out

    @property
    def held(self) -> int:
        """Return the bytes that wait for a border."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> bytes | None:
        """Return the next page, if enough has arrived."""
        buffer = self._buffer
        buffer += chunk
        if self._is_leaving_out and not self._passed():
            return None
        if len(buffer) < self._page_bytes:
            return None
        if self._head is None:
            first = buffer.find(_FIRST, self._searched)
            if first < 0:
                self._searched = max(0, len(buffer) - len(_FIRST) + 1)
                return None
            self._searched = 0
            self._head = bytes(buffer[: first + 1])
            del buffer[: first + 1]
        border = self._last_border()
        if border < 0:
            self._searched = max(0, len(buffer) - len(_BORDER))
            self._leave_out_if_long()
            return None
        self._searched = 0
        page = b"[" + buffer[: border + 1] + b"]"
        del buffer[: border + 2]
        return page

    def rest(self) -> bytes:
        """Return the answer as a document of its own, without the entries handed out."""
        head = self._head or b""
        return self._tail(head) if self._is_leaving_out else head + bytes(self._buffer)

    def _last_border(self) -> int:
        end = len(self._buffer) - 1  # what follows the border tells whether it is one
        while (at := self._buffer.rfind(_BORDER, self._searched, end)) >= 0:
            if self._buffer[at + len(_BORDER)] not in _BEHIND_A_VALUE:
                return at
            end = at + len(_BORDER) - 1
        return -1

    def _leave_out_if_long(self) -> None:
        # Of a list with blanks between its entries all would look like one.
        is_list = self._head is not None and self._head.endswith(_WITHOUT_BLANKS)
        if self._leave_out is None or not is_list or len(self._buffer) <= ENTRY_BYTES:
            return
        self._leave_out(bytes(self._buffer[:ENTRY_BYTES]))
        self._is_leaving_out = True
        self._passed()

    def _passed(self) -> bool:
        """Return whether the entry that is left out has ended; drop what has come of it."""
        buffer, start = self._buffer, self._searched
        while (at := buffer.find(_BORDER, start, len(buffer) - 1)) >= 0:
            if buffer[at + len(_BORDER)] not in _BEHIND_A_VALUE:
                del buffer[: at + 2]
                self._is_leaving_out, self._searched = False, 0
                return True
            start = at + 1
        del buffer[: max(0, len(buffer) - _TAIL_BYTES)]
        self._searched = max(0, len(buffer) - len(_BORDER))
        return False

    def _tail(self, head: bytes) -> bytes:
        """Return the document whose last entry is left out."""
        end = len(self._buffer)
        for _ in range(_MOST_TAILS):
            end = self._buffer.rfind(_LAST, 0, end)
            if end < 0:
                break
            # A label value may read like the end of the list; only what is it leaves a document.
            document = head + bytes(self._buffer[end + len(_LAST) - 1 :])
            try:
                decode_json(document, msgspec.Raw)
            except msgspec.DecodeError:
                continue
            return document
        return head  # cut off: no document
