"""From a parsed HTTP request to its encoded reply: the chain every request passes.

negotiate → identify → permit → dispatch (a group or a route) → encode → count. A step
whose result is at hand costs a call, not a task: with warm caches and a handler that
answers at once, the whole chain runs in one turn of the loop.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import UNSET, Struct

from podscale.serving import status
from podscale.serving.apis import api
from podscale.serving.apis.negotiate import (
    JSON,
    YAML,
    formatted,
    is_before_handling,
    media,
    takes_gzip,
)
from podscale.serving.auth.authentication import Authenticator
from podscale.serving.auth.authorization import Authorizer, Permission, ReviewFailed, denial
from podscale.serving.auth.user import ANONYMOUS_USER, User
from podscale.serving.http.parser import SMALL_BODY
from podscale.serving.http.request import HttpRequest, Peer, Reply, encoded
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import RequestTarget, parse_target
from podscale.serving.status import Status, StatusError

_COMPRESSED_FROM = 128 * 1024  # upstream's threshold
_YAML_AT_ONCE = 8 * 1024  # bytes of JSON, less than two milliseconds
_TEXT = "text/plain; charset=utf-8"
_TIMEOUT_BODY = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within '
    b'the allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)

# Upstream's timeout filter writes this with Go's http.Error: as text.
_TIMED_OUT = Reply(504, _TEXT, _TIMEOUT_BODY)


class _Waiting(Struct, frozen=True):
    """A step whose result is not at hand, and what to do with it."""

    pending: Awaitable[Any]
    resume: Callable[[Any], "Outcome"]

    def drop(self) -> None:
        """Give the step up before it began."""
        if isinstance(self.pending, Coroutine):
            self.pending.close()


Outcome = Reply | _Waiting


class _Exchange(Struct, frozen=True, gc=False):
    """One request on its way through the chain."""

    request: HttpRequest
    target: RequestTarget
    media: api.Media | Status
    handler: api.Handler | None
    methods: tuple[str, ...]  # what the handler takes; empty: it says itself
    deadline: float


class HandlerChain:
    def __init__(
        self,
        groups: Sequence[api.ApiGroup],
        routes: Sequence[api.Route],
        authenticator: Authenticator,
        authorizer: Authorizer,
        metrics: SelfMetrics,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        self._groups: Mapping[tuple[str, str], api.ApiGroup] = {
            (group.name, version): group for group in groups for version in group.versions
        }
        self._routes = {route.path: route for route in routes if not route.path.endswith("/*")}
        self._prefixes = [(route.path[:-1], route) for route in routes if route.path.endswith("/*")]
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._yaml_turn = asyncio.Lock()

    def respond(
        self, request: HttpRequest, peer: Peer, *, is_full: bool = False
    ) -> Reply | Coroutine[Any, Any, Reply]:
        """Return the reply, or a coroutine of it.

        ``is_full``: too many are waiting already, so what would have to wait gets 429.
        """
        started = asyncio.get_running_loop().time()
        target = parse_target(request.method, request.target)
        if target.is_too_long:
            reply = encoded(status.uri_too_long())
            self._count(request, target, reply, started)
            return reply
        exchange, is_public = self._exchange(request, target, started)
        outcome = (
            self._dispatch(exchange, ANONYMOUS_USER)
            if is_public
            else self._identify(exchange, peer)
        )
        if isinstance(outcome, _Waiting):
            if not is_full:
                return self._wait(exchange, outcome, started)
            outcome.drop()
            outcome = encoded(status.too_many_requests())
        self._count(request, target, outcome, started)
        return outcome

    def body_limit(self, method: str, target: str, peer: Peer) -> int:
        """Return how large a body may be: the large ones are declared, and what is not public
        takes them from whoever has proved who they are before the first request."""
        parsed = parse_target(method, target)
        route = None if parsed.info.is_resource else self._route(parsed.path)
        if route is None or method not in route.methods or route.body_limit <= SMALL_BODY:
            return SMALL_BODY
        is_known = route.is_public or self._authenticator.believes(peer)
        return route.body_limit if is_known else SMALL_BODY

    def _exchange(
        self, request: HttpRequest, target: RequestTarget, started: float
    ) -> tuple[_Exchange, bool]:
        info = target.info
        group = self._groups.get((info.group, info.version)) if info.is_resource else None
        route = None if info.is_resource else self._route(target.path)
        wanted = media(
            request.headers.get("accept", ""),
            offers_table=group is not None and group.offers_table,
            pretty=(target.query.get("pretty") or ("",))[0],
            agent=request.headers.get("user-agent", ""),
            # Of upstream's routes those of metrics.k8s.io tell one object from a list.
            is_streamed=group is None or not group.offers_table or info.verb != "get",
        )
        handler = route.handler if route is not None else None
        if group is not None:
            handler = group.handle
        timeout_s = min(self._timeout_s, target.timeout_s or self._timeout_s)
        exchange = _Exchange(
            request,
            target,
            wanted,
            handler,
            route.methods if route is not None else (),
            started + timeout_s,
        )
        # A public route takes its own methods only: others of its path are authorized as any.
        return exchange, route is not None and route.is_public and request.method in route.methods

    def _route(self, path: str) -> api.Route | None:
        route = self._routes.get(path)
        if route is None and self._prefixes:
            for prefix, candidate in self._prefixes:
                if path.startswith(prefix):
                    return candidate
        return route

    def _identify(self, exchange: _Exchange, peer: Peer) -> Outcome:
        found = self._authenticator.authenticate(exchange.request, peer)
        if found is None or isinstance(found, User):
            return self._identified(exchange, found)
        return _Waiting(found, partial(self._identified, exchange))

    def _identified(self, exchange: _Exchange, user: User | None) -> Outcome:
        if user is None:
            return self._encode(exchange, status.unauthorized())
        permission = self._authorizer.authorize(user, exchange.target.info)
        if isinstance(permission, Permission):
            return self._permitted(exchange, user, permission)
        return _Waiting(permission, partial(self._permitted, exchange, user))

    def _permitted(self, exchange: _Exchange, user: User, permission: Permission) -> Outcome:
        if permission.is_allowed:
            return self._dispatch(exchange, user)
        return self._encode(exchange, denial(user, exchange.target.info, permission.reason))

    def _dispatch(self, exchange: _Exchange, user: User) -> Outcome:
        request, target = exchange.request, exchange.target
        if target.refusal is not None:
            return self._encode(exchange, target.refusal)
        if exchange.handler is None or target.info.is_special:
            return self._encode(exchange, status.path_not_found())
        # A group says itself which methods it takes; none of ours takes HEAD.
        methods = exchange.methods
        if request.method not in methods if methods else request.method == "HEAD":
            return self._encode(exchange, status.method_not_allowed())
        # A form of JSON that cannot be encoded is still handled, as upstream does.
        wanted = exchange.media if isinstance(exchange.media, api.Media) else api.Media()
        api_request = api.ApiRequest(
            request.method,
            target.path,
            target.info,
            target.query,
            request.headers,
            request.body,
            user,
            wanted,
            exchange.deadline,
            partial(self._authorizer.authorize, user),
        )
        try:
            answer = exchange.handler(api_request)
        except Exception as error:  # noqa: BLE001 - a handler's bug is its caller's 500
            return self._encode(exchange, _status_of(error, exchange))
        if isinstance(answer, api.ApiResponse | Status):
            return self._encode(exchange, answer)
        waiting = _Waiting(answer, partial(self._encode, exchange))
        refusal = exchange.media
        if target.info.is_resource and isinstance(refusal, Status) and is_before_handling(refusal):
            # Path and method are right, or the answer would be there: nothing else is asked.
            waiting.drop()
            return self._encode(exchange, refusal)
        return waiting

    def _encode(self, exchange: _Exchange, answer: api.Answered) -> Outcome:
        if isinstance(answer, Status):
            answer = api.ApiResponse.of(answer)
        if answer.content_type:
            content_type, body = answer.content_type, answer.body
        else:
            wanted = exchange.media
            if isinstance(wanted, Status):
                if answer.status < 400:
                    answer = api.ApiResponse.of(wanted)
                wanted = api.Media()
            body = answer.body
            if answer.value is not UNSET:
                body = msgspec.json.encode(answer.value) + b"\n"
            content_type = wanted.content_type
            if content_type == YAML and len(body) > _YAML_AT_ONCE:
                return _Waiting(self._yaml(body), partial(_encoded, exchange, answer, YAML))
            if wanted.is_pretty or content_type != JSON:
                body = formatted(body, wanted)
        return _encoded(exchange, answer, content_type, body)

    async def _yaml(self, body: bytes) -> bytes:
        # One at a time: several threads would leave the event loop a fraction of the interpreter.
        async with self._yaml_turn:
            return await asyncio.to_thread(formatted, body, api.Media(YAML))

    async def _wait(self, exchange: _Exchange, waiting: "_Waiting", started: float) -> Reply:
        scope = asyncio.timeout_at(exchange.deadline)
        outcome: Outcome = waiting
        try:
            async with scope:
                while isinstance(outcome, _Waiting):
                    outcome = outcome.resume(await outcome.pending)
        except ReviewFailed as error:
            outcome = _internal_text(exchange.request.target, str(error))
        except Exception as error:  # noqa: BLE001 - a handler's bug is its caller's 500
            outcome = _TIMED_OUT
            if not scope.expired():
                outcome = encoded(_status_of(error, exchange))
        self._count(exchange.request, exchange.target, outcome, started)
        return outcome

    def _count(
        self, request: HttpRequest, target: RequestTarget, reply: Reply, started: float
    ) -> None:
        seconds = asyncio.get_running_loop().time() - started
        self._metrics.requests.observe(
            request.method, target.info, reply.status, seconds, len(reply.body)
        )


def _encoded(
    exchange: _Exchange, answer: api.ApiResponse, content_type: str, body: bytes
) -> Outcome:
    reply = Reply(answer.status, content_type, body, answer.headers)
    is_packed = len(body) >= _COMPRESSED_FROM and takes_gzip(exchange.request.headers)
    if is_packed and not any(name == "Content-Encoding" for name, _ in answer.headers):
        return _Waiting(_compressed(reply), lambda compressed: compressed)
    return reply


async def _compressed(reply: Reply) -> Reply:
    body = await asyncio.to_thread(gzip.compress, reply.body, 1)
    headers = (*reply.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return Reply(reply.status, reply.content_type, body, headers)


def _status_of(error: Exception, exchange: _Exchange) -> Status:
    if isinstance(error, StatusError):
        return error.status
    structlog.get_logger().error(
        "HandlerFailed", method=exchange.request.method, path=exchange.target.path, exc_info=error
    )
    return status.internal_error("the request could not be answered, see the log")


def _internal_text(target: str, cause: str) -> Reply:
    # responsewriters.InternalError, with its replacer against markup in the path.
    shown = target.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = f"Internal Server Error: {msgspec.json.encode(shown).decode()}: {cause}\n"
    nosniff = (("X-Content-Type-Options", "nosniff"),)
    return Reply(500, _TEXT, text.encode(), nosniff)
