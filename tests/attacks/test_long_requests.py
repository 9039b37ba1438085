"""No request keeps the loop for long before it is known who sends it.

A turn of the loop is what the server does with one request at a time: read its bytes, take it
apart, authenticate, negotiate. It is compared with the same of a short request.
"""

import gc
import time
import weakref
from collections.abc import Callable

import pytest

from podscale.serving.auth.authentication import Authenticator
from podscale.serving.auth.authorization import Authorizer
from podscale.serving.auth.trust import FrontProxy, Trust
from podscale.serving.handler_chain import HandlerChain
from podscale.serving.http.parser import HEADER_LIMIT, Parser
from podscale.serving.http.request import NOBODY, HttpRequest, Reply
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.attacks.test_memory import STRANGERS, _get, _long
from tests.unit.serving.kit import Shop

LIST = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods"
RATIO = 400.0  # about 5 ms; thousands of header lines, the most, take 2
MORE: dict[str, Callable[[int, str], bytes]] = {
    "accept-encoding": lambda n, _: _get("/a", f"Accept-Encoding: {_long(n, 'a#;q=1,')}"),
    "connection": lambda n, _: _get("/a", f"Connection: {_long(n, 'a#,')}"),
    "escaped-path": lambda n, _: _get(f"/{_long(n, '%41%e2%82%ac')}"),
    "escaped-path-of-a-resource": lambda n, _: _get(f"{LIST}/{_long(n, '%41/%2f')}"),
    "escaped-query": lambda n, _: _get(f"/a?a={_long(n, '%41%e2%82%ac')}"),
    "query-of-one-name": lambda n, _: _get(f"/a?{_long(n, 'a&')}"),
    "label-selector": lambda n, _: _get(
        f"{LIST}?fieldSelector=a%3Db&labelSelector={_long(n, 'k#x,')}"
    ),
    "field-selector": lambda n, _: _get(f"{LIST}?fieldSelector={_long(n, 'a#=b,')}x=y"),
    "timeout": lambda n, _: _get(f"/a?timeout={_long(n, '1ns')}{n}s"),
    "limit": lambda n, _: _get(f"{LIST}?fieldSelector=a%3Db&limit={_long(n, '1')}"),
}


def _turn(front: HandlerChain, data: bytes) -> float:
    """Return the seconds of CPU that the request takes until others are heard."""
    parser = Parser()
    began = time.thread_time()
    parser.feed(data)
    request = parser.next()
    if isinstance(request, HttpRequest):  # where the API server would be asked: 429
        answer = front.respond(request, NOBODY, is_full=True)
        assert isinstance(answer, Reply)
    took = time.thread_time() - began
    assert len(data) <= HEADER_LIMIT
    return took


@pytest.mark.parametrize("name", [*STRANGERS, *MORE])
async def test_a_long_request_takes_no_long_turn(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = SelfMetrics()
    authenticator = Authenticator(Trust((), FrontProxy(())), None, metrics)
    front = HandlerChain([Shop()], [], authenticator, Authorizer(None, metrics), metrics)
    request = {**STRANGERS, **MORE}[name]
    short = sorted(_turn(front, _get(f"{LIST}/p{n}/m?a={n}")) for n in range(101))[50]
    long = min(_turn(front, request(n, "token")) for n in range(5))
    with capsys.disabled():
        print(f"\n{name}: {long * 1e6:.0f} us, {long / short:.1f} times a short one")
    assert long <= RATIO * short


@pytest.mark.parametrize("name", [*STRANGERS, *MORE])
def test_what_was_read_is_gone_with_its_connection(name: str) -> None:
    request = {**STRANGERS, **MORE}[name]
    gc.disable()  # what waits for a collection is as good as held: 100 KB for each connection
    try:
        parser = Parser()
        parser.feed(request(1, "token"))
        parser.next()
        gone = weakref.ref(parser)
        del parser
        assert gone() is None
    finally:
        gc.enable()
