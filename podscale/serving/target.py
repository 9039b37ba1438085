"""A request's target taken apart, remembered for those who ask again."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from podscale.core.duration import DurationError, parse_go
from podscale.serving import status
from podscale.serving.request_info import RequestInfo, request_info
from podscale.serving.status import Status

# HPAs repeat the same few hundred bytes every 15 s; strangers' long targets are not kept.
_KEPT = 4096
_LONGEST_KEPT = 512


class Target(Struct, frozen=True, gc=False):
    """Path, query and what they mean."""

    path: str  # decoded
    query: Mapping[str, Sequence[str]]
    info: RequestInfo
    timeout_s: float | None = None  # of ?timeout=
    refusal: Status | None = None  # the timeout is not a duration


def parse_target(method: str, target: str) -> Target:
    """Return the parts of a target in origin form. Never raises."""
    return _kept(method, target) if len(target) <= _LONGEST_KEPT else _parse(method, target)


@lru_cache(maxsize=_KEPT)
def _kept(method: str, target: str) -> Target:
    return _parse(method, target)


def _parse(method: str, target: str) -> Target:
    raw_path, _, raw_query = target.partition("?")
    path = unquote(raw_path)
    query = parse_qs(raw_query.partition("#")[0], keep_blank_values=True) if raw_query else {}
    info = request_info(method, path, query)
    texts = query.get("timeout")
    if not texts or not texts[0]:
        return Target(path, query, info)
    try:
        seconds = parse_go(texts[0])
    except DurationError as error:
        text = f"invalid timeout specified in the request URL - {error}"
        return Target(path, query, info, None, status.bad_request(text))
    # Kubernetes reads timeout=0 as "the default", and so a negative one here.
    return Target(path, query, info, seconds if seconds > 0 else None)
