"""One adapter behind us, asked for ``external.metrics.k8s.io`` with an account of its own.

Who asks us has been authorized for exactly the namespace and metric before; what the backend is
shown is a short-lived token of a ServiceAccount that may only read, never the caller's and never
our own. Its failures are told as its failures, and are never "not found".
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TypeVar
from urllib.parse import quote

import msgspec
import structlog
from msgspec import Struct, structs

from adapter.backends.backends_file import BackendConfig
from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.core.metrics import ExternalMetric, ExternalSamples, NotFound, Unavailable
from podscale.core.selectors import selector as selectors
from podscale.kube.client import errors
from podscale.kube.client.api import Api, Response
from podscale.kube.client.connection import Connection
from podscale.kube.client.credentials import Identity
from podscale.kube.client.wire import decode
from podscale.kube.metrics_apis.bodies import ExternalValue
from podscale.kube.metrics_apis.provider import external_samples

log = structlog.get_logger(__name__)

USER_AGENT = "podscale-external-backend"  # of a request that has been passed on once
REASON = "ExternalBackend"  # of a backend's failure
CATEGORY = "external-backend"  # in discovery, of what we list and do not answer ourselves

_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
_TOKEN_S = 3600.0
_RENEW_S = 0.8 * _TOKEN_S
_RENEWED_ONCE_IN_S = 10.0  # where it is refused again and again
_MOST_NAMES = 10_000
_MOST_BYTES = 2 * 1024 * 1024
_READ_AT_ONCE = 64 * 1024  # bytes, about a millisecond; more is read beside the loop
_MOST_AT_ONCE = 16
_MOST_SAID = 300  # characters of a backend's own words

T = TypeVar("T")


class _TokenStatus(Struct, frozen=True):
    token: str = ""


class _TokenRequest(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _Listed(Struct, frozen=True):
    name: str = ""
    categories: tuple[str, ...] | None = None


class _ResourceList(Struct, frozen=True):
    kind: str = ""
    resources: list[_Listed] | None = None


class _NamedValue(ExternalValue, frozen=True, gc=False, rename="camel"):
    metric_name: str = ""


class _ValueList(Struct, frozen=True):
    kind: str = ""
    items: list[_NamedValue] | None = None


class PassedAnswer(Struct, frozen=True):
    """What a backend answered: its body as it came, and what that says."""

    body: bytes
    samples: ExternalSamples


class ReaderCredentials:
    """A token of the backend's ServiceAccount, asked of the cluster and renewed in time."""

    def __init__(self, config: BackendConfig, cluster: Api, clock: Callable[[], float]) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._ca = ""
        self._identity: Identity | None = None
        self._made_s = 0.0
        self._renewing = asyncio.Lock()

    async def current(self) -> Identity:
        """Return what to use now; raises ``KubeError``."""
        if self._identity is None or self._clock() - self._made_s >= _TOKEN_S:
            return await self.renew()
        return self._identity

    async def renew(self) -> Identity:
        """Return a new one, as often as that may help; raises ``KubeError``."""
        before = self._identity
        async with self._renewing:
            is_new = self._clock() - self._made_s < _RENEWED_ONCE_IN_S
            if self._identity is not None and (self._identity is not before or is_new):
                return self._identity
            tls = await self._context()
            config = self._config
            headers = {"Authorization": f"Bearer {await self._token()}"}
            hostname = config.server_name or None
            self._identity = Identity(config.url, headers, tls, hostname)
            self._made_s = self._clock()
            return self._identity

    async def refresh(self) -> None:
        """Renew a token that is getting old, and take a CA that has changed; raises ``KubeError``,
        and what there was stays in use."""
        identity = self._identity
        if identity is None or self._clock() - self._made_s > _RENEW_S:
            await self.renew()
        elif (tls := await self._context()) is not identity.tls:
            self._identity = structs.replace(identity, tls=tls)

    async def _context(self) -> ssl.SSLContext:
        """Return what trusts the CA as it is now, the one in use if that is the same."""
        file = self._config.ca_file
        known = None if self._identity is None else self._identity.tls
        try:
            ca = self._config.ca_bundle if file is None else await asyncio.to_thread(file.read_text)
            if known is not None and ca == self._ca:
                return known
            made = await asyncio.to_thread(ssl.create_default_context, cadata=ca)
        except (OSError, ValueError) as error:
            raise errors.NotConfigured(f"{file or 'caBundle'}: {error}") from None
        self._ca = ca
        return made

    async def _token(self) -> str:
        namespace, name = self._config.service_account
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(_TOKEN_S)},
        }
        try:
            answer = await self._cluster.request(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                body=msgspec.json.encode(body),
            )
            return decode_json(answer.body, _TokenRequest).status.token
        except (errors.KubeError, msgspec.DecodeError) as error:
            # Whatever the cluster answered, a 404 too: it is no answer about the metric.
            what = f"no token of the ServiceAccount {namespace}/{name}: {error}"
            raise errors.NotConfigured(what) from None


class ExternalBackend:
    """One of them, and its connection. Its list is read by ``look``."""

    def __init__(self, config: BackendConfig, cluster: Api) -> None:
        self.config = config
        self.names: frozenset[str] = frozenset()
        self.is_listed = False
        self.is_tried = False
        self.problem = ""  # of the last look
        self._credentials = ReaderCredentials(config, cluster, time.monotonic)
        self.connection = Connection(
            self._credentials,
            user_agent=USER_AGENT,
            most_bytes=_MOST_BYTES,
            most_at_once=_MOST_AT_ONCE,
        )
        self._failure = ""  # the last one that was logged

    def claims(self, question: ExternalMetric) -> bool:
        """Return whether a question is its own by its selector: before our rules are asked."""
        label = self.config.selector_label
        # Most selectors have no such label, and are not parsed for it.
        if not label or label not in question.metric_selector:
            return False
        try:
            parsed = selectors.parse(question.metric_selector)
        except selectors.SelectorError:
            return False
        return any(each.key == label for each in parsed.requirements)

    def matches(self, metric: str) -> bool:
        """Return whether a name is among its own."""
        return metric in self.names or any(fnmatchcase(metric, p) for p in self.config.metrics)

    async def passed(self, question: ExternalMetric) -> PassedAnswer | NotFound | Unavailable:
        """Return its answer. ``NotFound`` is said of a name that only a pattern gave to it."""
        place = quote(question.namespace, safe=""), quote(question.metric, safe="")
        selector = question.metric_selector
        asked_s = time.time()
        try:
            answer = await self.connection.request(
                "GET",
                f"{_ROOT}/namespaces/{'/'.join(place)}",
                query={"labelSelector": selector} if selector else {},
                timeout_s=self.config.timeout_s,
            )
            samples = await _read(answer, lambda: self._samples(answer, question, asked_s))
        except errors.KubeError as error:
            is_absent = isinstance(error, errors.ObjectNotFound) and error.reason == "NotFound"
            if is_absent and question.metric not in self.names and not self.claims(question):
                return NotFound(
                    REASON, f"the external backend {self.config.name} has no such metric"
                )
            is_timeout = isinstance(error, errors.ApiUnreachable) and error.is_timeout
            return self._failed(_words(error), str(error), is_timeout=is_timeout)
        except (msgspec.DecodeError, quantity.QuantityError, ValueError) as error:
            return self._failed(f"its answer is no list of values of {question.metric}", str(error))
        self._failure = ""
        return PassedAnswer(answer.body, samples)

    async def look(self) -> None:
        """Keep credentials and list current; a failure keeps those before, and is told."""
        problem = ""
        try:
            await self._credentials.refresh()
        except errors.KubeError as error:
            problem = str(error)
        try:
            answer = await self.connection.request("GET", _ROOT, timeout_s=self.config.timeout_s)
            own = await _read(answer, lambda: _names(answer))
            self.names, self.is_listed = frozenset(own[:_MOST_NAMES]), True
            if len(own) > _MOST_NAMES:
                problem = f"it lists {len(own)} metrics, {_MOST_NAMES} of them are taken"
        except (errors.KubeError, msgspec.DecodeError, ValueError) as error:
            problem = problem or str(error)
        if problem and problem != self.problem:
            log.warning("external backend not listed", backend=self.config.name, error=problem)
        self.problem, self.is_tried = problem, True

    def _samples(
        self, answer: Response, question: ExternalMetric, asked_s: float
    ) -> ExternalSamples:
        found = decode(answer.body, _ValueList)
        _expect("ExternalMetricValueList", found.kind)
        values = found.items or []
        for each in values:
            # client-go asks for a resource in lower case; KEDA answers with its own spelling.
            _expect(question.metric.lower(), each.metric_name.lower())
        return external_samples(values, asked_s, self.config.name)

    def _failed(self, words: str, error: str = "", *, is_timeout: bool = False) -> Unavailable:
        name = self.config.name
        said = "did not answer in time" if is_timeout else f"failed: {words}"
        if self._failure != (failure := error or said):
            log.warning("external backend failed", backend=name, error=failure)
        self._failure = failure
        return Unavailable(REASON, f"the external backend {name} {said}", is_timeout=is_timeout)


async def _read(answer: Response, read: Callable[[], T]) -> T:
    if answer.status != 200:
        raise ValueError(f"status {answer.status}; redirects are not followed")
    return await asyncio.to_thread(read) if len(answer.body) > _READ_AT_ONCE else read()


def _names(answer: Response) -> list[str]:
    found = decode(answer.body, _ResourceList)
    _expect("APIResourceList", found.kind)
    # What it would pass on itself it does not answer us: nobody lists in a circle.
    own = (each.name for each in found.resources or () if CATEGORY not in (each.categories or ()))
    return [name for name in own if name and "/" not in name]


def _expect(wanted: str, given: str) -> None:
    if given != wanted:
        raise ValueError(f"{wanted} is expected, not {given[:_MOST_SAID]!r}")


def _words(error: errors.KubeError) -> str:
    # What it says in a Status it would say to whoever asks; of a broken connection the text
    # holds addresses that are nobody's business.
    if isinstance(error, errors.ApiError):
        return f"{error.status} {str(error)[:_MOST_SAID]}"
    return "no connection" if isinstance(error, errors.ApiUnreachable) else "no credentials for it"
