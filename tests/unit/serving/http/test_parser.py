"""The HTTP/1.1 reader: whatever the cut of the stream, the same requests; doubt is refused."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.serving.http.parser import SMALL_BODY, Parser
from podscale.serving.http.request import HttpRequest, RequestRefusal

GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-Group: one\r\nX-Group: two, three\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;e=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
)


def everything(parser: Parser) -> list[HttpRequest | RequestRefusal]:
    found: list[HttpRequest | RequestRefusal] = []
    while (item := parser.next()) is not None:
        found.append(item)
        if isinstance(item, RequestRefusal):
            break
    return found


@given(
    order=st.lists(st.sampled_from([GET, POST, CHUNKED]), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 600)),
)
def test_the_cut_of_the_stream_does_not_matter(order: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(order)
    whole = Parser()
    whole.feed(stream)
    expected = everything(whole)
    assert [one.body for one in expected if isinstance(one, HttpRequest)] == [
        {GET: b"", POST: b"hello", CHUNKED: b"abc0123456789"}[one] for one in order
    ]
    parser, found = Parser(), []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        parser.feed(stream[start:end])
        found += everything(parser)
    assert found == expected


@given(st.binary(max_size=400), st.sampled_from([b"", GET, POST, CHUNKED]))
def test_no_bytes_raise(noise: bytes, before: bytes) -> None:
    parser = Parser()
    parser.feed(before + noise)
    everything(parser)


@given(st.data())
def test_a_damaged_request_is_refused_or_read_never_worse(data: st.DataObject) -> None:
    stream = bytearray(data.draw(st.sampled_from([GET, POST, CHUNKED])))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    parser = Parser()
    parser.feed(bytes(stream))
    for item in everything(parser):
        if isinstance(item, HttpRequest):
            assert item.target.startswith("/")
            assert not set(" \r\n\0") & set(item.target)
            assert all("\r" not in value and "\n" not in value for value in item.headers.values())


def test_repeated_headers_stay_apart() -> None:
    parser = Parser()
    parser.feed(GET)
    request = parser.next()
    assert isinstance(request, HttpRequest)
    assert request.all("x-group") == ("one", "two, three")
    assert request.headers["x-group"] == "one, two, three"
    assert request.all("host") == ("x",)
    assert request.all("absent") == ()


@pytest.mark.parametrize(
    ("sent", "keeps"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"\r\n\r\nGET http://other.example/x HTTP/1.1\r\nHost: x\r\n\r\n", True),
    ],
)
def test_keep_alive(sent: bytes, keeps: bool) -> None:
    parser = Parser()
    parser.feed(sent)
    request = parser.next()
    assert isinstance(request, HttpRequest)
    assert request.keeps_alive is keeps


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", 400, id="space-before-colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400, id="folding"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, id="bare-lf-inside"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400, id="bare-cr"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\0\r\n\r\n", 400, id="nul"),
        pytest.param(b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="two-spaces"),
        pytest.param(b"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="method"),
        pytest.param(b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="control-in-target"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, id="two-hosts"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", 400, id="signed-length"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            400,
            id="length-and-chunked",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            400,
            id="other-encoding",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            id="chunk-size",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
            400,
            id="chunk-too-long",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n"
            + b"x" * (SMALL_BODY + 1),
            413,
            id="chunked-body-too-large",
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="http2-preface"),
    ],
)
def test_ambiguity_is_refused(sent: bytes, code: int) -> None:
    parser = Parser()
    parser.feed(sent)
    refusal = parser.next()
    assert isinstance(refusal, RequestRefusal)
    assert refusal.status.code == code
    parser.feed(GET)
    assert parser.next() is refusal
    assert parser.buffered == 0


def test_a_trickled_header_is_not_read_again_and_again() -> None:
    parser = Parser()
    for byte in GET[:-1]:
        parser.feed(bytes([byte]))
        assert parser.next() is None
    assert parser._scanned == len(GET) - 1 - 3
    parser.feed(GET[-1:])
    assert isinstance(parser.next(), HttpRequest)
