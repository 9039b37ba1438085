"""Whatever clients send, it does not stay: every cache is bounded in bytes and in age.

A real adapter; its resident memory is read while requests come that nobody has sent before.
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.memory_stage import EXTERNAL, MIB, PODS, Attacked, Attacker, attacked

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
REQUESTS = 300 if IS_SHORT else 2_000  # of each kind
GROWTH = 64 * MIB
LEFT = 32 * MIB
LEFT_AFTER_S = 60.0
MIXED = 50 if IS_SHORT else 500
WARM = 200
WIDE = "\U0001f600"  # makes four bytes of every character in Python

Request = Callable[[int, str], bytes]  # of its number and a token that gets in


def _get(target: str, *lines: str, method: str = "GET") -> bytes:
    head = [f"{method} {target} HTTP/1.1", "Host: x", *lines, "", ""]
    return "\r\n".join(head).encode()


def _long(number: int, text: str, size: int = 60_000) -> str:
    """Return ``size`` characters that are others for each ``number``."""
    made = text.replace("#", str(number))
    return (made * (size // len(made) + 1))[:size]


def _names(number: int, count: int) -> str:
    return ",".join(f"label{number}x{each}" for each in range(count))


def _token(token: str) -> str:
    return f"Authorization: Bearer {token}"


STRANGERS: dict[str, Request] = {
    "accept": lambda n, _: _get("/healthz", f"Accept: {_long(n, 'a#/b;q=0.5,')}"),
    "accept-parameters": lambda n, _: _get("/healthz", f"Accept: a/b;{_long(n, 'p#=v;')}"),
    "accept-unencoded": lambda n, _: _get("/healthz", f"Accept: {_long(n, f'a#/{WIDE},', 28_000)}"),
    "path": lambda n, _: _get(f"/{_long(n, 'p#')}"),
    "path-of-many-segments": lambda n, _: _get(f"/apis/g/v/{_long(n, '#/')}"),
    "path-of-a-resource": lambda n, _: _get(f"{PODS}{_long(n, 'm#')}"),
    "path-just-short-enough": lambda n, _: _get(f"{PODS}/{_long(n, 's#/', 400)}"),
    "path-unencoded": lambda n, _: _get(f"/{_long(n, f'p#{WIDE}', 14_000)}"),
    "version": lambda n, _: _get(f"/apis/custom.metrics.k8s.io/{_long(n, 'v#')}/pods"),
    "query": lambda n, _: _get(f"/healthz?q={_long(n, 'q#')}"),
    "query-of-many-parameters": lambda n, _: _get(f"/healthz?{_long(n, 'a#&b#=c&')}"),
    "query-just-short-enough": lambda n, _: _get(f"/healthz?{_long(n, 'a#&', 400)}"),
    "user-agent": lambda n, _: _get("/healthz", f"User-Agent: {_long(n, 'u#')}"),
    "token": lambda n, _: _get(PODS, _token(_long(n, "t#"))),
    "token-of-many": lambda n, _: _get(PODS, _token(f"t{n}")),
    "audit-id": lambda n, _: _get("/healthz", f"Audit-ID: {_long(n, 'i#')}"),
    "method": lambda n, _: _get("/healthz", method=_long(n, "M#")),
    "many-headers": lambda n, _: _get("/healthz", *(f"h{n}-{i}: {i}" for i in range(3_000))),
    "one-header-often": lambda n, _: _get("/healthz", *(f"h: {n}-{i}" for i in range(3_000))),
    "remote-user": lambda n, _: _get(PODS, f"X-Remote-User: {_long(n, 'u#')}"),
}
TENANTS: dict[str, Request] = {
    "label-selector": lambda n, token: _get(
        f"{PODS}?labelSelector={_names(n, 3_000)}", _token(token)
    ),
    "metric-selector": lambda n, token: _get(
        f"{PODS}?metricLabelSelector={_names(n, 3_000)}", _token(token)
    ),
    "middling-metric-selector": lambda n, token: _get(
        f"{PODS}?metricLabelSelector={_names(n, 60)}", _token(token)
    ),
    "external-selector": lambda n, token: _get(
        f"{EXTERNAL}?labelSelector={_names(n, 2_000)}", _token(token)
    ),
    "short-selector": lambda n, token: _get(
        f"{PODS}?metricLabelSelector=label{n}=v", _token(token)
    ),
    "field-selector": lambda n, token: _get(
        f"{PODS}?fieldSelector={_long(n, 'metadata.name=p#,')}x", _token(token)
    ),
    "metric": lambda n, token: _get(f"{PODS}{_long(n, 'm#')}", _token(token)),
    "namespace": lambda n, token: _get(
        f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{_long(n, 'n#')}/pods/%2A/m",
        _token(token),
    ),
    "version": lambda n, token: _get(
        f"/apis/custom.metrics.k8s.io/{_long(n, 'v#')}/namespaces/a/pods/b/m", _token(token)
    ),
    "usage": lambda n, token: _get(
        f"/apis/metrics.k8s.io/v1beta1/pods?labelSelector={_names(n, 3_000)}", _token(token)
    ),
}
PROXIED: dict[str, Request] = {
    "users": lambda n, _: _get(PODS, f"X-Remote-User: {_long(n, 'u#')}"),
    "groups": lambda n, _: _get(
        PODS, f"X-Remote-User: u{n}", *(f"X-Remote-Group: g{n}-{i}" for i in range(2_000))
    ),
    "extras": lambda n, _: _get(
        PODS, f"X-Remote-User: u{n}", *(f"X-Remote-Extra-{n}-{i}: {i}" for i in range(2_000))
    ),
    "masters": lambda n, _: _get(
        f"{PODS}?labelSelector=a{n}", f"X-Remote-User: {_long(n, 'u#')}",
        "X-Remote-Group: system:masters",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("adapter")) as running:
        with Attacker(running.port) as client:
            for number in range(WARM):
                assert client.send(_get("/healthz", f"Accept: a/{number}")) == 200
                assert client.send(_get(f"{PODS}?a={number}", _token(running.token))) == 200
        yield running


def _attack(adapter: Attacked, request: Request, numbers: range, *, proxied: bool) -> set[int]:
    with Attacker(adapter.port, adapter.proxy if proxied else None) as attacker:
        return {attacker.send(request(number, adapter.token)) for number in numbers}


EVERYTHING = [
    pytest.param(request, kinds is PROXIED, id=f"{who}-{name}")
    for who, kinds in (("stranger", STRANGERS), ("tenant", TENANTS), ("proxied", PROXIED))
    for name, request in kinds.items()
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("request_", "proxied"), EVERYTHING)
def test_requests_that_nobody_sent_before_do_not_stay(
    adapter: Attacked, request_: Request, proxied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = adapter.memory
    began = time.monotonic()
    statuses = _attack(adapter, request_, range(REQUESTS), proxied=proxied)
    growth = adapter.memory - before
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(f"\n{growth / MIB:.1f} MiB, {seconds:.1f} s, {sorted(statuses)}")
    assert growth < GROWTH


@pytest.mark.timeout(900)
def test_a_minute_after_everything_memory_is_back(
    adapter: Attacked, capsys: pytest.CaptureFixture[str]
) -> None:
    before = adapter.memory
    most = before
    for parameters in EVERYTHING:
        request, proxied = parameters.values
        _attack(adapter, request, range(-MIXED, 0), proxied=proxied)
        most = max(most, adapter.memory)
    time.sleep(LEFT_AFTER_S)
    left = adapter.memory - before
    with capsys.disabled():
        print(
            f"\nall: {(most - before) / MIB:.1f} MiB at most, {left / MIB:.1f} MiB a minute later"
        )
    assert most - before < GROWTH
    assert left < LEFT
