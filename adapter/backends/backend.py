"""One adapter behind us, asked for ``external.metrics.k8s.io`` with an account of its own.

Who asks us has been authorized for exactly the namespace and metric before; what the backend is
shown is a short-lived token of a ServiceAccount that may only read, never the caller's and never
our own. Its failures are told as its failures, and are never "not found".
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from itertools import islice

import msgspec
import structlog
from msgspec import Struct

from adapter.backends.backends_file import BackendConfig
from podscale.core.metrics import (
    Answer,
    ExternalMetric,
    Failure,
    NoData,
    NotFound,
    Question,
    Unavailable,
)
from podscale.core.selectors import selector as selectors
from podscale.kube.client.api import Api
from podscale.kube.client.connection import Connection
from podscale.kube.client.credentials import Identity
from podscale.kube.client.errors import KubeError, NotConfigured
from podscale.kube.discovery.refreshed import ApiDiscovery
from podscale.kube.metrics_apis.provider import ApiProvider

log = structlog.get_logger(__name__)

USER_AGENT = "podscale-external-backend"  # of a request that has been passed on once
REASON = "ExternalBackend"  # of a backend's failure

_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
_TOKEN_S = 3600.0
_RENEW_S = 0.8 * _TOKEN_S
_LIST_S = 30.0
_MOST_NAMES = 10_000
_MOST_BYTES = 16 * 1024 * 1024
_CONCURRENCY = 16
_SLACK_S = 1.0  # beyond its own deadline


class _TokenStatus(Struct, frozen=True):
    token: str = ""


class _TokenRequest(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _Described(Struct, frozen=True):
    name: str = ""


class _ResourceList(Struct, frozen=True):
    resources: list[_Described] = []


class ReaderCredentials:
    """A token of the backend's ServiceAccount, asked of the cluster and renewed in time."""

    def __init__(self, config: BackendConfig, cluster: Api, clock: Callable[[], float]) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._tls: ssl.SSLContext | None = None
        self._identity: Identity | None = None
        self._made_s = 0.0
        self._renewing = asyncio.Lock()

    async def current(self) -> Identity:
        """Return what to use now; raises ``KubeError``."""
        age_s = self._clock() - self._made_s
        if self._identity is None or age_s > _RENEW_S:
            try:
                return await self.renew()
            except KubeError:
                if self._identity is None or age_s >= _TOKEN_S:
                    raise
        return self._identity

    async def renew(self) -> Identity:
        """Return a new one; raises ``KubeError``."""
        before = self._identity
        async with self._renewing:
            if self._identity is not None and self._identity is not before:
                return self._identity  # somebody else did
            config = self._config
            try:
                self._tls = await asyncio.to_thread(
                    ssl.create_default_context, cafile=str(config.ca_file)
                )
            except (OSError, ValueError) as error:
                raise NotConfigured(f"{config.ca_file}: {error}") from None
            namespace, name = config.service_account
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": int(_TOKEN_S)},
            }
            answer = await self._cluster.request(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                body=msgspec.json.encode(body),
            )
            token = msgspec.json.decode(answer.body, type=_TokenRequest).status.token
            headers = {"Authorization": f"Bearer {token}"}
            hostname = config.server_name or None
            self._identity = Identity(config.url, headers, self._tls, hostname)
            self._made_s = self._clock()
            return self._identity


class ExternalBackend:
    """One of them. A ``MetricsProvider`` of external metrics."""

    def __init__(self, config: BackendConfig, api: Api, discovery: ApiDiscovery) -> None:
        self.config = config
        self._api = api
        self._provider = ApiProvider(
            api, discovery, timeout_s=config.timeout_s, concurrency=_CONCURRENCY
        )
        self.patience_s = config.timeout_s + _SLACK_S
        self._names: frozenset[str] = frozenset()
        self._problem = ""

    def listed(self) -> Iterable[tuple[str, str]]:
        """Return its metrics as it lists them; ("", name)."""
        return [("", name) for name in self._names]

    def claims(self, question: Question) -> bool:
        """Return whether a question is its own by its selector: before our rules are asked."""
        label = self.config.selector_label
        if not label or not isinstance(question, ExternalMetric):
            return False
        try:
            parsed = selectors.parse(question.metric_selector)
        except selectors.SelectorError:
            return False
        return any(each.key == label for each in parsed.requirements)

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer per question; ``NotFound`` for what is not its own."""
        mine = dict.fromkeys(question for question in questions if self._is_mine(question))
        found = dict(zip(mine, await asyncio.gather(*map(self._one, mine)), strict=True))
        return [found.get(question, _NOT_MINE) for question in questions]

    async def _one(self, question: Question) -> Answer:
        try:
            # Its turn behind others that hang is part of the time.
            async with asyncio.timeout(self.config.timeout_s):
                (answer,) = await self._provider.answer([question])
        except TimeoutError:
            answer = Unavailable(REASON, "no turn in time", is_timeout=True)
        return self._named(answer)

    async def run(self) -> None:
        """Read its list again and again, for ever."""
        while True:
            await self.read_list()
            await asyncio.sleep(_LIST_S)

    async def read_list(self) -> None:
        """Read its list of metrics; a failure keeps the one before."""
        problem = ""
        try:
            answer = await self._api.request("GET", _ROOT, timeout_s=self.config.timeout_s)
            found = msgspec.json.decode(answer.body, type=_ResourceList).resources
            names = (each.name for each in found if each.name and "/" not in each.name)
            self._names = frozenset(islice(names, _MOST_NAMES))
            if len(found) > _MOST_NAMES:
                problem = f"it lists {len(found)} metrics, {_MOST_NAMES} of them are taken"
        except (KubeError, msgspec.MsgspecError, OSError, ValueError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.warning("external backend not listed", backend=self.config.name, error=problem)
        self._problem = problem

    def _is_mine(self, question: Question) -> bool:
        if not isinstance(question, ExternalMetric):
            return False
        return (
            question.metric in self._names
            or any(fnmatchcase(question.metric, each) for each in self.config.metrics)
            or self.claims(question)
        )

    def _named(self, answer: Answer) -> Answer:
        name = self.config.name
        if not isinstance(answer, Failure) or isinstance(answer, NoData):
            return answer
        if isinstance(answer, NotFound):
            return NotFound(REASON, f"the external backend {name} has no such metric")
        timed_out = isinstance(answer, Unavailable) and answer.is_timeout
        log.warning("external backend failed", backend=name, error=answer.message)
        said = "did not answer in time" if timed_out else f"failed ({answer.reason})"
        return Unavailable(REASON, f"the external backend {name} {said}", is_timeout=timed_out)


_NOT_MINE = NotFound(REASON, "no external backend lists it")


@asynccontextmanager
async def opened(
    configs: Sequence[BackendConfig],
    cluster: Api,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[list[ExternalBackend]]:
    """Keep connections to them while the block runs. Nothing is sent yet."""
    async with AsyncExitStack() as stack:
        backends = []
        for config in configs:
            api = await stack.enter_async_context(
                Connection(
                    ReaderCredentials(config, cluster, clock),
                    user_agent=USER_AGENT,
                    most_bytes=_MOST_BYTES,
                )
            )
            backends.append(ExternalBackend(config, api, ApiDiscovery(api)))
        yield backends
