"""The head of a reply: nothing that a value brings in ends its line."""

from hypothesis import given
from hypothesis import strategies as st

from podscale.serving.http.request import reply_head


@given(st.text(), st.text())
def test_a_value_stays_on_its_line(first: str, second: str) -> None:
    head = reply_head(200, "a", "d", "text/plain", 1, [("Warning", first), ("ETag", second)])
    lines = head.split(b"\r\n")
    assert [line.partition(b":")[0] for line in lines[-4:]] == [b"Warning", b"ETag", b"", b""]
    assert not any(byte < 0x20 or 0x7F <= byte < 0xA0 for line in lines for byte in line)
