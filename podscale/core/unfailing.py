"""A stream for what is said beside the work: a full disk or a closed pipe must not end it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TextIO, cast


def unfailing(stream: TextIO | None) -> TextIO:
    """Return ``stream`` so that writing never raises; None where there is none to write to."""
    return stream if isinstance(stream, UnfailingStream) else cast(TextIO, UnfailingStream(stream))


@contextmanager
def unfailing_file(path: Path) -> Iterator[TextIO]:
    """Yield a stream into a new file, of which not even the end raises: it writes what is left."""
    stream = path.open("w", buffering=1)
    try:
        yield cast(TextIO, UnfailingStream(stream))
    finally:
        with suppress(OSError):
            stream.close()


class UnfailingStream(io.TextIOBase):
    """Writes through to another stream; what cannot be written is dropped and counted."""

    lost: ClassVar[int] = 0  # texts of this process that could not be written

    def __init__(self, stream: TextIO | None) -> None:
        """``stream`` is None where the process was started without one."""
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8" if self._stream is None else self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What is done with characters that the encoding has not."""
        return "backslashreplace" if self._stream is None else self._stream.errors

    def write(self, text: str) -> int:
        """Return the length of ``text``, written or not."""
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):  # closed streams raise ValueError
            UnfailingStream.lost += 1
        return len(text)

    def flush(self) -> None:
        """Do nothing: every text is written through."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Return whether people read along."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's; raises ``OSError`` where it has none."""
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()
