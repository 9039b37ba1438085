"""The adapters behind us, in their order, each with a connection of its own.

First those of the file, then those that Services of our namespace name, where the file says so.
What the file and the Services name comes and goes with them.
"""

import asyncio
from collections.abc import Sequence, Set
from typing import Any, Self

import msgspec
import structlog
from msgspec import Struct

from adapter.backends import backends_file
from adapter.backends.backend import REASON, ExternalBackend, PassedAnswer
from adapter.errors import ConfigInvalid
from adapter.selfmetrics import AdapterMetrics
from podscale.core.metrics import ExternalMetric, NotFound, Question, Unavailable
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import SERVICES
from podscale.kube.client.wire import ListOf, decode
from podscale.kube.leadership.leading import own_namespace

log = structlog.get_logger(__name__)

_LOOK_S = 30.0
_SLACK_S = 1.0  # beyond the deadlines of all
_MOST_SHOWN = 10  # shadowed names


class BackendTold(Struct, frozen=True, rename="camel"):
    """One backend, for the doctor."""

    name: str
    url: str
    metrics: int  # that it lists
    problem: str = ""
    shadowed: Sequence[str] = ()  # "lag, by our rules": the first of those that others answer


class BackendRouter:
    """All of them. An async context manager."""

    def __init__(self, cluster: Api, metrics: AdapterMetrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._named = backends_file.NamedBackends()
        self._open: dict[str, ExternalBackend] = {}  # in their order
        self._works: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}  # Services that are none, and why
        self._looking = asyncio.Lock()
        self._tasks = asyncio.TaskGroup()
        self.names: frozenset[str] = frozenset()  # that they list; as long as it is so, one object
        self.is_tried = False  # whether each has been listed, or failed to be, since the start

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for work in self._works.values():
            work.cancel()
        self._open, self._works = {}, {}
        await self._tasks.__aexit__(*error)

    async def replace(self, named: backends_file.NamedBackends) -> None:
        """Work with those of a file from now on, and with the Services that there are."""
        self._named = named
        await self.look()

    async def run(self) -> None:
        """Look for Services again and again, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Open what is new and leave what is gone; without an answer Services stay as they were."""
        async with self._looking:
            configs = await self._wanted()
            for name in [n for n, each in self._open.items() if configs.get(n) != each.config]:
                self._leave(name)
            self._open = {
                name: self._open.get(name) or self._opened(each) for name, each in configs.items()
            }
            self._note()

    @property
    def patience_s(self) -> float:
        """How long an answer may take: each may be asked after the other."""
        return _SLACK_S + sum(each.config.timeout_s for each in self._open.values())

    def claimant(self, question: Question) -> ExternalBackend | None:
        """Return whose own a question is by its selector: before our rules are asked."""
        if not isinstance(question, ExternalMetric):
            return None
        return next((each for each in self._open.values() if each.claims(question)), None)

    async def answer(
        self, questions: Sequence[Question]
    ) -> list[PassedAnswer | NotFound | Unavailable]:
        """Return one answer per question; ``NotFound`` for what is nobody's."""
        distinct = dict.fromkeys(questions)
        found = dict(zip(distinct, await asyncio.gather(*map(self._answer, distinct)), strict=True))
        return [found[question] for question in questions]

    def told(self, by_rules: Set[str]) -> list[BackendTold]:
        """Return what the doctor is told; ``by_rules`` are the external metrics of our rules."""
        taken = dict.fromkeys(by_rules, "our rules")
        found = []
        for each in self._open.values():
            name = each.config.name
            shadowed = sorted(each.names & taken.keys())
            shown = [f"{metric}, by {taken[metric]}" for metric in shadowed[:_MOST_SHOWN]]
            if len(shadowed) > _MOST_SHOWN:
                shown.append(f"{len(shadowed) - _MOST_SHOWN} more")
            found.append(BackendTold(name, each.config.url, len(each.names), each.problem, shown))
            taken |= dict.fromkeys(each.names - taken.keys(), f"the external backend {name}")
        return found + [BackendTold(name, "", 0, text) for name, text in self._refused.items()]

    async def _answer(self, question: Question) -> PassedAnswer | NotFound | Unavailable:
        """Return the answer of the claimant, else of the first whose question it is by name."""
        found: PassedAnswer | NotFound | Unavailable = _NOBODYS
        if not isinstance(question, ExternalMetric):
            return found
        claimant = self.claimant(question)
        every = self._open.values() if claimant is None else (claimant,)
        for backend in [each for each in every if claimant or each.matches(question.metric)]:
            found = await backend.passed(question)
            result = "answered" if isinstance(found, PassedAnswer) else "not_found"
            if isinstance(found, Unavailable):
                result = "timeout" if found.is_timeout else "failed"
            self._metrics.passed.labels(backend.config.name, result).inc()
            if not isinstance(found, NotFound):
                return found
        unknown = next((each for each in self._open.values() if not each.is_listed), None)
        if unknown is None:
            return found
        what = f"the external backend {unknown.config.name} has not been listed yet"
        return Unavailable(REASON, f"{what}, it may have {question.metric}: {unknown.problem}")

    async def _wanted(self) -> dict[str, backends_file.BackendConfig]:
        configs = {each.name: each for each in self._named.backends}
        if not self._named.with_services:
            self._refused = {}
            return configs
        try:
            return configs | self._of_services(await self._services(), configs.keys())
        except (KubeError, msgspec.DecodeError) as error:
            if self._refused.get("Services") != (problem := f"not listed: {error}"):
                log.warning("Services of external backends not listed", error=str(error))
            self._refused["Services"] = problem
        kept = (each.config for each in self._open.values() if each.config.ca_file is None)
        return configs | {each.name: each for each in kept if each.name not in configs}

    def _note(self) -> None:
        """Take in what the last look at one of them has changed."""
        names: frozenset[str] = frozenset().union(*(each.names for each in self._open.values()))
        if names != self.names:
            self.names = names
        # For good: one that comes later takes nobody out of service.
        self.is_tried = self.is_tried or all(each.is_tried for each in self._open.values())

    async def _services(self) -> list[backends_file.LabelledService]:
        namespace = await asyncio.to_thread(own_namespace, "podscale")
        answer = await self._cluster.request(
            "GET", SERVICES.path(namespace), query={"labelSelector": backends_file.LABEL}
        )
        return decode(answer.body, ListOf[backends_file.LabelledService]).items or []

    def _of_services(
        self, services: Sequence[backends_file.LabelledService], before: Set[str]
    ) -> dict[str, backends_file.BackendConfig]:
        found: dict[str, backends_file.BackendConfig] = {}
        refused: dict[str, str] = {}
        for service in sorted(services, key=lambda each: each.metadata.name):
            try:
                config = backends_file.of_service(service)
            except ConfigInvalid as invalid:
                refused[str(service)] = str(invalid)
                continue
            if config.name in before:
                refused[str(service)] = "the file has a backend of its name, which is the one asked"
            else:
                found[config.name] = config
        for service_name in refused.keys() - self._refused.keys():
            log.warning("external backend refused", error=refused[service_name])
        self._refused = refused
        return found

    def _opened(self, config: backends_file.BackendConfig) -> ExternalBackend:
        backend = ExternalBackend(config, self._cluster)
        self._works[config.name] = self._tasks.create_task(
            self._hold(backend), name=f"external backend {config.name}"
        )
        return backend

    def _leave(self, name: str) -> None:
        # What is being asked of it is answered first.
        backend, work = self._open.pop(name), self._works.pop(name)
        self._metrics.passed_names.remove_by_labels({"backend": name})
        asyncio.get_running_loop().call_later(backend.config.timeout_s, work.cancel)

    async def _hold(self, backend: ExternalBackend) -> None:
        async with backend.connection:
            while True:
                await self._read(backend)
                await asyncio.sleep(_LOOK_S)

    async def _read(self, backend: ExternalBackend) -> None:
        await backend.look()
        self._note()
        name = backend.config.name
        if self._open.get(name) is backend:
            self._metrics.passed_names.labels(name).set(len(backend.names))


_NOBODYS = NotFound(REASON, "no external backend has it")
