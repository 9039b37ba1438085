"""Cuts a large Prometheus answer into pages while it arrives.

A body of 150 MB must be neither held nor decoded whole. Prometheus writes the entries of
an answer as a flat array of objects; the bytes ``},{"`` cannot occur inside a JSON string
(its quote would be escaped), so each occurrence is a border between two entries. A server
that puts blanks between entries is read correctly too, only in one page.
"""

PAGE_BYTES = 8 * 1024  # about 40 series of 200 bytes, an eighth of a millisecond

_BORDER = b'},{"'
_FIRST = b"[{"


class Splitter:
    """Takes chunks, gives pages: JSON arrays of whole entries."""

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes
        self._head: bytes | None = None  # all before the first entry, with its bracket
        self._buffer = bytearray()
        self._searched = 0  # nothing begins before here: a long entry is not read again and again

    @property
    def held(self) -> int:
        """Return the bytes that wait for a border."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> bytes | None:
        """Return the next page, if enough has arrived."""
        buffer = self._buffer
        buffer += chunk
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
        border = buffer.rfind(_BORDER, self._searched)
        if border < 0:
            self._searched = max(0, len(buffer) - len(_BORDER) + 1)
            return None
        self._searched = 0
        page = b"[" + buffer[: border + 1] + b"]"
        del buffer[: border + 2]
        return page

    def rest(self) -> bytes:
        """Return the answer as a document of its own, without the entries handed out."""
        return (self._head or b"") + bytes(self._buffer)
