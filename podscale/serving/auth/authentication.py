"""Who sent a request: front proxy, client certificate, bearer token, or nobody.

The order and the outcomes are those of the delegating authenticator of k8s.io/apiserver
(``pkg/authentication/authenticatorfactory``): the first that recognises the request
wins; when none does, one that *failed* makes it a 401, otherwise it is anonymous.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.core.boundedcache import BoundedCache
from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiError, KubeError
from podscale.serving.auth.trust import FrontProxy, Trust, is_issued_by
from podscale.serving.auth.user import ANONYMOUS_USER, User, with_authenticated_group
from podscale.serving.http.request import HttpRequest, Peer
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.singleflight import SingleFlight

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_TIMEOUT_S = 10.0
_MOST_TOKEN_BYTES = 8 * 1024 * 1024
# A refused token may be one that the API server is about to know: whatever the flag says.
_REFUSED_TOKEN_TTL_S = 10.0


class TokenVerdict(Struct, frozen=True):
    """The outcome of one review; no user: not authenticated."""

    user: User | None


class _UserInfo(Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: Mapping[str, list[str]] | None = None


class _ReviewStatus(Struct, frozen=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    error: str = ""


class _Answer(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _Spec(Struct, frozen=True):
    token: str


class _Review(Struct, frozen=True, kw_only=True):
    kind: Literal["TokenReview"] = "TokenReview"
    api_version: str = msgspec.field(default="authentication.k8s.io/v1", name="apiVersion")
    spec: _Spec


class TokenReviews:
    """Reviews with a cache. Failures to ask, or to judge, are not remembered, refusals are."""

    def __init__(
        self,
        api: Api,
        metrics: SelfMetrics,
        *,
        ttl_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._ttl_s = ttl_s
        self._clock = clock
        # Keys are keyed hashes: a memory dump of ours must not be a list of tokens.
        self._key = secrets.token_bytes(32)
        self._known: BoundedCache[bytes, tuple[float, TokenVerdict]] = BoundedCache(
            _MOST_TOKEN_BYTES, age_s=2 * max(ttl_s, _REFUSED_TOKEN_TTL_S)
        )
        self._asking: SingleFlight[bytes, TokenVerdict] = SingleFlight()

    def cached(self, token: str) -> TokenVerdict | None:
        """Return a verdict that still holds."""
        found = self._known.get(self._hashed(token))
        if found is None or found[0] <= self._clock():
            return None
        return found[1]

    async def review(self, token: str) -> TokenVerdict:
        """Return the API server's verdict; one request for all who ask at the same time."""
        hashed = self._hashed(token)
        return await self._asking.run(hashed, lambda: self._ask(token, hashed))

    async def _ask(self, token: str, hashed: bytes) -> TokenVerdict:
        started = self._clock()
        code = "<error>"
        try:
            response = await self._api.request(
                "POST",
                _PATH,
                body=msgspec.json.encode(_Review(spec=_Spec(token))),
                timeout_s=_TIMEOUT_S,
            )
            code = str(response.status)
            answer = decode_json(response.body, _Answer).status
        except (KubeError, msgspec.DecodeError) as error:
            if isinstance(error, ApiError):
                code = str(error.status)
            structlog.get_logger().warning("TokenReviewFailed", error=str(error))
            return TokenVerdict(None)
        finally:
            self._metrics.delegated_authn.observe(code, self._clock() - started)
        verdict = TokenVerdict(_user(answer.user) if answer.authenticated else None)
        if answer.error and not answer.authenticated:
            # The API server could not judge, as while its own webhook is away.
            structlog.get_logger().info("TokenNotJudged", error=answer.error)
            return verdict
        ttl_s = self._ttl_s if answer.authenticated else min(self._ttl_s, _REFUSED_TOKEN_TTL_S)
        if ttl_s > 0:
            size = len(hashed) + (0 if verdict.user is None else verdict.user.size)
            self._known.put(hashed, (self._clock() + ttl_s, verdict), size)
        return verdict

    def _hashed(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()


def _user(info: _UserInfo) -> User:
    extra = tuple(sorted((key, tuple(values)) for key, values in (info.extra or {}).items()))
    return User(info.username, tuple(info.groups or ()), info.uid, extra)


_MOST_BYTES = 4 * 1024 * 1024  # of certificates: some 1,000 peers
# A certificate may be refused for a reason that passes: our clock was wrong, or its CA was
# about to come.
_REFUSED_TTL_S = 5.0


class Verified(Struct, frozen=True):
    """What a certificate proves under one trust."""

    is_proxy: bool = False  # signed by the front proxy's CA and of an allowed name
    user: User | None = None  # signed by the clients' CA
    is_nameless: bool = False  # signed by the clients' CA, without a common name
    not_after: float = 0.0

    @property
    def is_somebody(self) -> bool:
        """Whether it proves anything at all."""
        return self.is_proxy or self.user is not None


_UNKNOWN = (0.0, Verified())


class Authenticator:
    """The authentication chain. A result at hand is returned without a coroutine."""

    def __init__(
        self,
        trust: Trust,
        reviews: TokenReviews | None,
        metrics: SelfMetrics,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trust = trust
        self._reviews = reviews
        self._metrics = metrics
        self._wall = wall
        self._clock = clock
        # Until when nothing is proved, and what is.
        self._verified: BoundedCache[Peer, tuple[float, Verified]] = BoundedCache(_MOST_BYTES)
        self._attempts = metrics.authentication.counts

    def use(self, trust: Trust) -> None:
        """Judge by ``trust`` from now on, connections that are already open included."""
        self._trust = trust
        self._verified.clear()

    def believes(self, peer: Peer) -> bool:
        """Return whether the peer's certificate proves somebody: a user, or the front proxy."""
        return peer.certificate is not None and self._verify(peer).is_somebody

    def authenticate(
        self, request: HttpRequest, peer: Peer
    ) -> User | Coroutine[Any, Any, User | None] | None:
        """Return the user, None for 401, or a coroutine of either (a token to review)."""
        failed = False
        if peer.certificate is not None:
            verified = self._verify(peer)
            if verified.is_proxy:
                user = _proxied(request, self._trust.proxy)
                if user is not None:
                    return self._accepted(user)
            if verified.user is not None:
                return self._accepted(verified.user)
            # Go: a chain that does not verify is an error of that authenticator, and an
            # error is remembered; a certificate without a common name is merely nobody.
            failed = not verified.is_nameless
        token = _bearer_token(request.headers.get("authorization", ""))
        if token:
            return self._reviewed(token)
        if failed:
            self._attempts["failure"] += 1
            return None
        return ANONYMOUS_USER

    def _accepted(self, user: User) -> User:
        self._attempts["success"] += 1
        return with_authenticated_group(user)

    def _reviewed(self, token: str) -> User | Coroutine[Any, Any, User | None] | None:
        if self._reviews is None:
            self._attempts["failure"] += 1
            return None
        known = self._reviews.cached(token)
        if known is not None:
            return self._judged(known.user)
        return self._ask(self._reviews, token)

    async def _ask(self, reviews: TokenReviews, token: str) -> User | None:
        return self._judged((await reviews.review(token)).user)

    def _judged(self, user: User | None) -> User | None:
        if user is None:
            self._attempts["failure"] += 1
            return None
        return self._accepted(user)

    def _verify(self, peer: Peer) -> Verified:
        now = self._wall()
        until, known = self._verified.get(peer) or _UNKNOWN
        holds = now < known.not_after if known.is_somebody else self._clock() < until
        if holds:
            return known
        verified = verify(peer, self._trust, now)
        if verified.is_somebody:
            self._metrics.client_certificate_expiration.observe(verified.not_after - now)
        size = sum(map(len, (peer.certificate or b"", *peer.chain)))
        self._verified.put(peer, (self._clock() + _REFUSED_TTL_S, verified), size)
        return verified


def verify(peer: Peer, trust: Trust, now: float) -> Verified:
    """Return what ``peer`` proves; a certificate that does not parse proves nothing."""
    if peer.certificate is None:
        return Verified()
    try:
        leaf = x509.load_der_x509_certificate(peer.certificate)
        between = [x509.load_der_x509_certificate(der) for der in peer.chain[1:]]
        names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        groups = leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    except ValueError as error:
        structlog.get_logger().info("ClientCertificateUnreadable", error=str(error))
        return Verified()
    # Go's pkix.Name keeps the last of several.
    name = str(names[-1].value) if names else ""
    proxy = trust.proxy
    is_proxy = (not proxy.allowed_names or name in proxy.allowed_names) and is_issued_by(
        leaf, between, proxy.ca, now
    )
    is_client = is_issued_by(leaf, between, trust.client_ca, now)
    if is_client and not proxy.allowed_names:
        # One CA for both and no name to tell them apart: a user's certificate must never
        # speak for others, so nobody is the front proxy then.
        is_proxy = False
    user = User(name, tuple(str(group.value) for group in groups)) if is_client and name else None
    return Verified(is_proxy, user, is_client and not name, leaf.not_valid_after_utc.timestamp())


def _proxied(request: HttpRequest, proxy: FrontProxy) -> User | None:
    name = _first(request, proxy.username_headers)
    if not name:
        return None
    groups = [value for header in proxy.group_headers for value in request.all(header)]
    extra: dict[str, list[str]] = {}
    for header in [one for one in request.headers if one.startswith(proxy.extra_prefixes)]:
        for prefix in proxy.extra_prefixes:
            if header.startswith(prefix):
                key = unquote(header.removeprefix(prefix))
                extra.setdefault(key, []).extend(request.all(header))
    return User(
        name,
        tuple(groups),
        _first(request, proxy.uid_headers),
        tuple(sorted((key, tuple(values)) for key, values in extra.items())),
    )


def _first(request: HttpRequest, headers: tuple[str, ...]) -> str:
    for header in headers:
        for value in request.all(header)[:1]:
            if value:
                return value
    return ""


def _bearer_token(header: str) -> str:
    # Go: two words at least, the first "bearer" in any case; an empty token is none.
    words = header.strip().split(" ", 2)
    if len(words) < 2 or ascii_lower(words[0]) != "bearer":
        return ""
    return words[1]
