"""What RBAC is asked about a path is what Kubernetes would ask about it."""

import os
from collections import Counter
from random import Random

import pytest
from msgspec import structs

from podscale.serving.http.parser import Parser
from podscale.serving.http.request import HttpRequest
from podscale.serving.request_info import RequestInfo, parse_target
from tests.cluster.request_draws import request
from tests.cluster.requests_executed import Told, execute, program

pytestmark = pytest.mark.timeout(1200)  # the first time, Go builds what executes

REQUESTS = 60_000
OTHERS = ("get", "CONNECT")
REASONS = {
    "Fragment": "A # is a part of the path for Go's server. No client sends one, so we answer 400.",
    "RawBytes": "Bytes beyond ASCII that are not escaped are read by Go; llhttp refuses them.",
    "OtherMethod": "Go's server takes any word as a method; llhttp those that it knows.",
    "NoAttributes": "Of /watch and /proxy alone Go knows no attributes, and its server answers "
    "500. We ask RBAC about a resource of that name, and answer 404.",
}


def read(method: str, target: str) -> RequestInfo | None:
    """Return the attributes that our server judges; ``None``: it answers 400."""
    parser = Parser()
    parser.feed(f"{method} {target} HTTP/1.1\r\nHost: podscale\r\n\r\n".encode("latin-1"))
    found = parser.next()
    if not isinstance(found, HttpRequest):
        return None
    return parse_target(found.method, found.target).info


def difference(method: str, target: str, told: Told) -> str:
    """Return the kind of the difference, with both sides where none is known; "": none."""
    own = read(method, target)
    if own is None:
        if told.is_refused:
            return ""
        if not target.isascii():
            return "RawBytes"
        return "Fragment" if "#" in target else "OtherMethod" if method in OTHERS else "refused"
    if told.is_refused:
        return f"refused by Go only: {own}"
    if told.is_failed:
        return "NoAttributes" if own.is_special and len(own.parts) == 1 else f"{told} {own}"
    # What is below /watch/ and /proxy/ Go's routes tell apart, not its attributes.
    return "" if structs.replace(own, is_special=False) == told.info else f"{told.info}\n{own}"


def test_paths_are_read_as_the_api_server_reads_them() -> None:
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    asked = [request(Random(seed)) for seed in range(start, start + REQUESTS)]
    told = execute(program(), asked)
    found: dict[str, list[str]] = {}
    for (method, target), theirs in zip(asked, told, strict=True):
        kind = difference(method, target, theirs)
        found.setdefault(kind, []).append(f"{method} {target}")
    verbs = Counter(theirs.info.verb for theirs in told if theirs.info.is_resource)
    equal = len(found.pop("", []))
    kinds = {kind: len(each) for kind, each in found.items()}
    print(f"{REQUESTS} requests from seed {start}: {equal} equal, {kinds}, {dict(verbs)}")
    unknown = {kind: each for kind, each in found.items() if kind not in REASONS}
    assert not unknown, "\n".join(f"{each[0]}\n{kind}" for kind, each in [*unknown.items()][:10])
    assert set(found) == set(REASONS)  # one that does not occur any more goes from the list
    assert equal > REQUESTS * 0.9
    assert min(verbs[verb] for verb in ("get", "list", "watch", "proxy", "deletecollection")) > 100
