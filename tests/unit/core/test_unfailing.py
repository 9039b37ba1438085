"""A stream that never raises."""

import io
from pathlib import Path

from podscale.core.unfailing import UnfailingStream, unfailing, unfailing_file


class _Full(io.StringIO):
    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_texts_that_cannot_be_written_are_counted_and_later_ones_are_written() -> None:
    disk = _Full()
    stream, before = unfailing(disk), UnfailingStream.lost
    print("one", file=stream)
    disk.is_full = True
    print("two", file=stream)
    assert UnfailingStream.lost > before
    disk.is_full = False
    print("three", file=stream)
    assert disk.getvalue() == "one\nthree\n"


def test_a_closed_stream_and_none_are_written_to_all_the_same() -> None:
    disk = io.StringIO()
    stream = unfailing(disk)
    disk.close()
    before = UnfailingStream.lost
    assert stream.write("one") == 3
    assert UnfailingStream.lost == before + 1
    assert unfailing(None).write("one") == 3
    assert not unfailing(None).isatty()
    assert not stream.isatty()


def test_a_stream_is_not_wrapped_twice() -> None:
    stream = unfailing(io.StringIO())
    assert unfailing(stream) is stream


def test_a_file_on_a_full_disk_ends_nothing():
    before = UnfailingStream.lost
    with unfailing_file(Path("/dev/full")) as stream:
        stream.write("a line\n")
        stream.write("and another")
    assert UnfailingStream.lost == before + 2
