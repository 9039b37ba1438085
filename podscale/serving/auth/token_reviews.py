"""Bearer tokens, asked of the API server by TokenReview and remembered for seconds."""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
import structlog
from msgspec import Struct

from podscale.core.boundedcache import BoundedCache
from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiError, KubeError
from podscale.serving.auth.user import User
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.singleflight import SingleFlight

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_TIMEOUT_S = 10.0
_MOST_BYTES = 8 * 1024 * 1024
# A refused token may be one that the API server is about to know: whatever the flag says.
_REFUSED_TTL_S = 10.0


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
            _MOST_BYTES, age_s=2 * max(ttl_s, _REFUSED_TTL_S)
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
        ttl_s = self._ttl_s if answer.authenticated else min(self._ttl_s, _REFUSED_TTL_S)
        if ttl_s > 0:
            size = len(hashed) + (0 if verdict.user is None else verdict.user.size)
            self._known.put(hashed, (self._clock() + ttl_s, verdict), size)
        return verdict

    def _hashed(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()


def _user(info: _UserInfo) -> User:
    extra = tuple(sorted((key, tuple(values)) for key, values in (info.extra or {}).items()))
    return User(info.username, tuple(info.groups or ()), info.uid, extra)
