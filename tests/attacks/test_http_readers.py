"""Mutated requests read by us, by h11 and by Go's net/http: every difference has its reason.

A proxy in front of us reads the same bytes. Where it sees another number of requests, or
other bodies, one of its users speaks for another one: that kind of difference is on no list.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest

import pytest

from tests.attacks.http_mutations import mutated
from tests.attacks.http_readers import Read, Reading, read_by_go, read_by_h11, read_here

SEED = 20261124
SHORT, LONG = 60_000, 300_000
PAGE = 20_000  # streams at a time
_AUTHORITY = re.compile(r"https?://[^/?]+", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")

# What we refuse and the other reads. None of it is sent by clients that mean well.
STRICTER: Mapping[str, str] = {
    "can't be present with": "RFC 9112, 6.3: a message with both lengths ought to be an error",
    "does not allow this method": "llhttp knows the methods there are; Go and h11 leave it to us",
    "Invalid method for": "RTSP's methods",
    "Missing expected CR": "bare LF: 9112, 2.2 lets a recipient take it, and others do not",
    "Expected LF after chunk size": "bare CR within a chunk's extension",
    "Invalid header": "control characters, and LF before a line",
    "Unexpected whitespace after header": "folded lines: 9112, 5.2 lets a server refuse them",
    "target is no path": "CONNECT's authority, the * of OPTIONS, other schemes",
    "a fragment, or a %": "the target has no fragment; Go reads a path with #, h11 any bytes",
    "Invalid characters in url": "a target that is no path",
    "Invalid char in url": "bytes beyond ASCII, or no characters of a URL, in the target",
    "Unexpected start char in url": "a target that is no path",
    "Unexpected char in url": "a target that is no path",
    "first line is not": "empty lines of LF alone, other versions: h11 takes them, Go some",
    "not supported here": "chunks in HTTP/1.0, which Go and h11 ignore; codings before chunked",
    "Request has invalid": "a coding in HTTP/1.0 that Go and h11 ignore",
    "header value": "several codings, in HTTP/1.0 or a trailer",
    "Empty Transfer-Encoding": "likewise, of no coding",
    "Duplicate Content-Length": "the same length twice: Go and h11 take it for one",
    "Invalid character in Content-Length": "a list of the same lengths: h11 takes it for one",
    "Content-Length overflow": "more than 64 bits: h11 waits for the bytes",
    "Content-Length is not a number": "more digits than we read, zeros among them",
    "chunk extensions": "extensions of other characters than tokens: Go and h11 skip them",
    "chunk size": "blanks behind the size",
    "body does not go with Upgrade": "llhttp takes the body for the other protocol",
    "header host is missing": "Go does not ask CONNECT for it",
    "header host is not a host": "h11 takes any",
    "may be there once": "two Authorization headers: which one counts is anybody's guess",
    "cannot be met": "an expectation that h11 leaves to its user",
}  # fmt: skip
# What we read and the other refuses: (reader, its reason) and ours.
LOOSER: Mapping[tuple[str, str], str] = {
    ("Go", "malformed HTTP request"): "an empty line before a request: 9112, 2.2 wants it skipped",
    ("h11", "no request line received"): "likewise",
}  # fmt: skip
# Both refuse, each with its own words: ours and the other's.
STATUSES: Mapping[tuple[str, str], str] = {
    ("400", "501"): "codings that are not chunked: malformed for us, not implemented for others",
    ("405", "501"): "the method comes first",
    ("405", "400"): "likewise, and something else is wrong further down",
    ("400", "505"): "versions",
    ("400", "417"): "the expectation comes last",
    ("417", "400"): "of two the one that Go does not look at",
    ("413", "400"): "a length beyond the limit: Go waits for the body, and finds it cut short",
    ("405", "417"): "likewise",
}


def difference(ours: Reading, theirs: Reading, reader: str) -> tuple[str, ...] | None:
    """Return the kind of difference, None for none; one of framing begins with ``framing``."""
    for mine, other in zip_longest(ours.requests, theirs.requests):
        if mine is None:
            if ours.status:
                return "stricter", ours.why
            return ("closes", "we") if _closes(ours) else ("framing", "we wait")
        if other is None:
            if theirs.status:
                return "looser", reader, theirs.why
            return ("closes", reader) if _closes(theirs) else ("framing", "they wait")
        if _meant(mine) != _meant(other):
            return "framing", "other requests"
    if ours.status and theirs.status and ours.status != theirs.status:
        return "status", ours.status, theirs.status
    return None


def _closes(reading: Reading) -> bool:
    return bool(reading.requests) and reading.requests[-1].closes


def _meant(request: Read) -> tuple[str, str, bytes]:
    target = _AUTHORITY.sub("", request.target, count=1)
    if target != request.target and not target.startswith("/"):
        target = f"/{target}"
    return request.method, target, request.body


def reason(kind: Sequence[str]) -> tuple[str, ...] | None:
    """Return the entry of the lists that allows this kind, None where none does."""
    match kind:
        case ["stricter", why]:
            plain = _QUOTED.sub("", why)
            return next((("stricter", key) for key in STRICTER if key in plain), None)
        case ["looser", reader, why]:
            return next(
                (("looser", *key) for key in LOOSER if key[0] == reader and key[1] in why), None
            )
        case ["status", ours, theirs] if (ours, theirs) in STATUSES:
            return "status", ours, theirs
        case ["closes", _]:
            return ("closes",)  # HTTP/1.0, which keeps alive by a header that readers take apart
    return None


@pytest.mark.timeout(1200)
def test_every_difference_between_readers_has_its_reason() -> None:
    seen: Counter[tuple[str, ...]] = Counter()
    unexplained: dict[tuple[str, ...], bytes] = {}
    whole = 0
    made = mutated(SEED)
    for _ in range((SHORT if os.environ.get("PODSCALE_SHORT") else LONG) // PAGE):
        streams = list(islice(made, PAGE))
        by_go = read_by_go(streams)
        for stream, go in zip(streams, by_go, strict=True):
            ours = read_here(stream)
            whole += len(ours.requests)
            for reader, theirs in (("Go", go), ("h11", read_by_h11(stream))):
                kind = difference(ours, theirs, reader)
                if kind is None:
                    continue
                entry = reason(kind)
                if entry is None:
                    unexplained.setdefault(kind, stream)
                else:
                    seen[entry] += 1
    assert not unexplained, "\n".join(f"{kind}: {one!r}" for kind, one in unexplained.items())
    for entry, times in seen.most_common():
        print(f"{times:7} {' '.join(entry)}")
    print(f"{whole} requests read whole, {seen.total()} differences")
    listed = {("stricter", key) for key in STRICTER} | {("looser", *key) for key in LOOSER}
    listed |= {("status", *key) for key in STATUSES} | {("closes",)}
    assert sorted(listed - seen.keys()) == [], "a reason for what does not happen"
    assert whole > SHORT // 3, "the faults leave something to compare"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(["/a"], ["/b"], id="target"),
        pytest.param(["/a", "/b"], ["/a"], id="they-wait"),
        pytest.param(["/a"], ["/a", "/b"], id="we-wait"),
    ],
)
def test_other_framing_is_on_no_list(ours: list[str], theirs: list[str]) -> None:
    kind = difference(_reading(ours), _reading(theirs), "Go")
    assert kind is not None
    assert kind[0] == "framing"
    assert reason(kind) is None


def _reading(targets: list[str]) -> Reading:
    return Reading([Read("GET", target, b"", False) for target in targets])
