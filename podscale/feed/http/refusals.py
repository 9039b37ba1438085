"""HTTP outcomes of Prometheus, as failures with a class.

The texts never quote the query or Prometheus's words: they reach users who may not read
either. Those words travel in ``QueryError.detail``, for logs.
"""

import re

from podscale.core.metrics import Failure, Refused, Unavailable
from podscale.feed.decoding.wire import Envelope, refusal
from podscale.feed.errors import Kind, QueryError

_TLS_SETTING = re.compile(r" ssl:(?:default|True|False|\[?<[^<>]*>\]?)")
_MOST_SHOWN = 160  # characters of an answer that is not Prometheus's

MOST_WAIT_S = 10.0  # that somebody is told to stay away, whatever stands before Prometheus says

QUERY_TIMEOUT = "QueryTimeout"  # Prometheus answered: that it gave the query up

_CHECK_URL = "check --prometheus-url and any proxy or firewall on the way"
# What answers of a class have in them, and what to do about these.
_BY_WORDS = {
    "[SSL": "Prometheus cannot be reached: TLS failed; give the CA of its certificate with "
    "--prometheus-ca-file, or an http URL where it has none",
    "404 ": "Prometheus answered 404: --prometheus-url may lack a path prefix, as /prometheus",
}
_LIGHTER = (
    "select fewer series, take a shorter range, or ask for what a recording rule has computed"
)


def advice(words: str) -> str:
    """Return what to do about a query that was too much, by Prometheus's words; "": it was not."""
    if "too many samples" in words:
        return f"it reads more samples at once than --query.max-samples allows: {_LIGHTER}"
    if _is_late(words):
        return f"it did not end within --query.timeout or our deadline: {_LIGHTER}"
    return ""


def _is_late(words: str) -> bool:
    return "timed out in" in words or "context deadline exceeded" in words


def failure(kind: Kind, retry_after_s: float | None = None, words: str = "") -> Failure:
    """Return what consumers are told about a failure of this class; ``words`` are Prometheus's."""
    if kind == "bad-data":
        return Refused(
            "QueryInvalid", "Prometheus does not understand the query: correct metricsQuery"
        )
    if kind == "execution":
        return Refused(
            "QueryFailed",
            "Prometheus could not evaluate the query (422): "
            + (advice(words) or "the log has its words, and so has podscale doctor --metric"),
        )
    if kind == "unauthorized":
        return Refused(
            "PrometheusUnauthorized",
            "Prometheus answered 401: check the token, the password or the client certificate",
        )
    if kind == "forbidden":
        return Refused(
            "PrometheusForbidden",
            "Prometheus answered 403: let this account read it, or give another one's token with "
            "--prometheus-token-file",
        )
    text, reason = _UNAVAILABLE[kind]
    text = next((told for mark, told in _BY_WORDS.items() if mark in words), text)
    is_timeout = kind in ("deadline", "timeout")
    return Unavailable(reason, text, is_timeout=is_timeout, retry_after_s=retry_after_s)


_UNAVAILABLE: dict[Kind, tuple[str, str]] = {
    "unreachable": (f"Prometheus cannot be reached: {_CHECK_URL}", "PrometheusUnreachable"),
    "deadline": ("Prometheus did not answer in time", "PrometheusTimeout"),
    "no-place": (
        "Too many queries run already: Prometheus is slow, or some rule is (see the log)",
        "PrometheusBusy",
    ),
    "timeout": (
        f"Prometheus gave up evaluating the query: {advice('query timed out in')}",
        QUERY_TIMEOUT,
    ),
    "throttled": ("Prometheus answered 429: too many requests", "PrometheusThrottled"),
    "gateway": (
        "Prometheus, or a gateway before it, answered a server error: is it ready (/-/ready)?",
        "PrometheusError",
    ),
    "oversize": ("The answer is larger than the limit for one query", "AnswerTooLarge"),
    "partial": (
        "Only a part of the series could be read: a store behind Prometheus does not answer",
        "PartialAnswer",
    ),
    "nonsense": (
        f"The answer is not one of Prometheus's API (perhaps a login page): {_CHECK_URL}",
        "PrometheusAnswerInvalid",
    ),
}


def error(kind: Kind, detail: str = "", retry_after_s: float | None = None) -> QueryError:
    """Return the exception for a failure of this class."""
    return QueryError(kind, failure(kind, retry_after_s, detail), detail)


def of_status(status: int, body: bytes, retry_after: str | None = None) -> QueryError:
    """Return the exception for an answer other than 2xx."""
    said = refusal(body)
    kind = _kind(status, said)
    detail = f"{status} {said.error_type}: {said.error}" if said else f"{status} {_beginning(body)}"
    return error(kind, detail, _wait_s(retry_after))


def _wait_s(retry_after: str | None) -> float | None:
    # Clients sleep as long as they are told: one worker of the in-tree HPA, for all of us.
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()):
        return None
    return MOST_WAIT_S if len(retry_after) > 4 else min(float(retry_after), MOST_WAIT_S)


def of_connection(cause: Exception) -> QueryError:
    """Return the exception for no answer at all; aiohttp's words, without its TLS setting."""
    return error("unreachable", _TLS_SETTING.sub("", str(cause)))


def _beginning(body: bytes) -> str:
    text = " ".join(body.decode(errors="replace").split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _kind(status: int, said: Envelope | None) -> Kind:
    match status:
        case 401:
            return "unauthorized"
        case 403:
            return "forbidden"
        case 413 | 414 | 431:
            return "oversize"
        case 422:
            # Where the storage was late it is no error of evaluation to Prometheus.
            return "timeout" if said is not None and _is_late(said.error) else "execution"
        case 429:
            return "throttled"
    if said is not None and said.error_type == "timeout":
        return "timeout"
    if status >= 500:
        return "gateway"
    # A 400 that is not Prometheus's JSON was written by somebody else.
    return "bad-data" if status == 400 and said is not None else "nonsense"
