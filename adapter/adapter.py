"""The adapter put together: rules, lists, providers and the three API groups.

It is given ``AdapterPorts`` that other parts of the process may share (``podscale run``
gives the HPA and the VPA the same feed and the same pods).
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct, structs

from adapter import flags as flags_
from adapter.apis import metric_providers
from adapter.apis.metric_apis import CustomApi, ExternalApi
from adapter.apis.metric_providers import MetricSources
from adapter.apis.resource_api import ResourceApi
from adapter.apis.response_cache import ResponseCache
from adapter.apis.rules_api import RulesTold, WithRules, told
from adapter.backends.backend_router import BackendRouter
from adapter.backends.backends_file import NamedBackends, read_backends
from adapter.discovery.objects import WatchedObjects
from adapter.discovery.registry import MetricRegistry, RuleState
from adapter.discovery.relist import Relister
from adapter.doctor.lints import sound_rules
from adapter.metric_rules.status import RuleStatusWriter
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.provider import FeedProvider
from adapter.queries.plans import Plans
from adapter.queries.usage import UsageByRules
from adapter.rules.followed_file import FollowedFile
from adapter.rules.ruleset import Rule, RuleSet
from adapter.selfmetrics import AdapterMetrics
from adapter.sources.source_router import SourceRouter
from adapter.sources.sources_file import NamedSources, read_sources
from podscale.core.metrics import MetricsProvider
from podscale.core.showable import shown_url
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient
from podscale.feed.source_routing import FeedBySource
from podscale.kube.client.api import Api
from podscale.kube.client.resource import Resource
from podscale.kube.columns.metadata import OnDemandMetadata
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leadership.leading import for_ever
from podscale.kube.leadership.lease import Elector
from podscale.kube.metrics_apis.provider import ApiProvider
from podscale.kube.objects.cluster import ObjectReference
from podscale.process.part import Work
from podscale.serving.apis.api import ApiGroup
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict

log = structlog.get_logger(__name__)

_PATIENCE_S = 30.0  # of readiness, with rules that cannot be listed


class AdapterPorts(Struct, frozen=True):
    """What the adapter reads and writes. Pods and discovery are kept current by others."""

    api: Api
    discovery: ApiDiscovery
    pods: PodStore
    client: PrometheusClient
    sources: SourceRouter
    backends: BackendRouter
    metrics: AdapterMetrics
    recorder: Recorder
    pod: ObjectReference | None = None  # ours, which events are about; None: there are none
    elector: Elector | None = None  # who leads writes the status of rules; None: there is one
    is_server: bool = True  # of the APIs; who only reads writes no status


class NewestMapper:
    """The mapper of the latest discovery, whenever it is asked."""

    def __init__(self, discovery: ApiDiscovery) -> None:
        self._discovery = discovery

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """Return what ``resource`` means now; raises ``NoMatch``."""
        return self._discovery.mapper.resource_for(resource, group, version)


class Adapter:
    """One running adapter, a ``FeedReader``. ``prepare`` first, then ``run`` beside the server."""

    def __init__(
        self,
        flags: Flags,
        ports: AdapterPorts,
        *,
        others: Sequence[MetricsProvider] | None = None,
        poll_s: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``others`` are providers of other packages (None: those installed); ``poll_s`` lies
        between two looks at the files; ``clock`` is that of the feed and of Prometheus.
        """
        self._poll_s = poll_s
        self._clock = clock
        self._flags = flags
        self._ports = ports
        self._rules = RuleSet.empty()
        mapper = NewestMapper(ports.discovery)
        self._file = FollowedFile(
            Path(flags.text("config")),
            lambda text, file: sound_rules(text, file, mapper, ports.sources.names),
            self._take, self._refuse,
            what="rules",
            when_empty="`rules: []` where MetricRules or external backends serve all metrics",
        )  # fmt: skip
        self._others = OnDemandMetadata(ports.api)
        self.objects = WatchedObjects(ports.pods, self._others)
        self._plans = Plans()
        self.usage = UsageByRules(lambda: self._rules.resource, self.objects, self._plans)
        self.metric_rules = WatchedMetricRules(
            ports.api, ports.discovery, lambda: ports.sources.named, self._take_objects
        )
        self._statuses = RuleStatusWriter(
            ports.api, self.metric_rules, self._state_of, self._listed
        )
        self._sources = ports.sources
        path = flags.text("sources")
        self._sources_file = FollowedFile(
            Path(path), read_sources, self._take_sources,
            partial(self._not_reloaded, "sources", "ones"),
            what="sources", when_empty="`sources: []` where none are to be asked",
        ) if path else None  # fmt: skip
        path = flags.text("external-backends")
        self._backends_file = FollowedFile(
            Path(path), read_backends, self._take_backends,
            partial(self._not_reloaded, "backends", "ones"),
            what="external backends", when_empty="`backends: []` where none are to be asked",
        ) if path else None  # fmt: skip
        self._feed = feed = FeedBySource(ports.sources)
        options = feed.options
        self._reuse = ResponseCache(options.max_age_s if options.is_coalescing else 0.0, clock)
        self.provider = FeedProvider(
            feed, self.objects, mapper, self._plans, self.usage,
            custom=self._custom, external=self._external,
            absence=lambda: self.metric_rules.absence,
        )  # fmt: skip
        found = metric_providers.load() if others is None else others
        self.source = MetricSources(
            self.provider, found, ports.backends if path else None,
            cluster=ApiProvider(ports.api, ports.discovery, wall=clock),
        )  # fmt: skip
        freshness = ports.metrics.freshness
        custom = CustomApi(self.source, self._custom, self._reuse, freshness, clock)
        external = ExternalApi(self.source, self._external, self._reuse, freshness, clock)
        self.groups: tuple[ApiGroup, ...] = (
            WithRules(custom, self._rules_told),
            WithRules(external, self._rules_told),
            ResourceApi(feed, self.usage, self.objects, freshness, clock=clock),
        )
        self._relister: Relister | None = None
        self._is_tried = False  # every rule has been listed or has failed to be, or is late
        self._patient_until = math.inf  # of the loop's clock

    @property
    def feed(self) -> Feed:
        """The feed of ``--prometheus-url``."""
        return self._sources.default

    @property
    def rules(self) -> RuleSet:
        return self._rules

    @property
    def has_backends(self) -> bool:
        """Whether there may be adapters behind this one."""
        return self._backends_file is not None

    @property
    def rules_problem(self) -> str:
        """Why one of the files as it is now was refused; "": all are in force."""
        files = (self._file, self._sources_file, self._backends_file)
        return next((each.problem for each in files if each is not None and each.problem), "")

    @property
    def relister(self) -> Relister:
        """The lists of metrics."""
        if self._relister is None:
            raise RuntimeError("prepare() comes first")
        return self._relister

    async def prepare(self) -> None:
        """Read sources and rules; raises ``ConfigInvalid``, ``OSError`` or ``FlagError``."""
        if self._sources_file is not None:
            await self._sources.replace(await self._sources_file.first())
        if self._backends_file is not None:
            await self._ports.backends.replace(await self._backends_file.first())
        self._rules = await self._file.first()
        has_rules = bool(self._rules.custom or self._rules.external)
        self._relister = Relister(
            self._sources,
            self._rules,
            flags_.relist_options(self._flags, has_rules=has_rules),
            listed=self._note_listed,
            renewed=self._relisted,
            clock=self._clock,
        )
        self._patient_until = asyncio.get_running_loop().time() + _PATIENCE_S

    def works(self) -> Sequence[Work]:
        """Return the relists, the files that are followed, and the events about them."""
        return (("rules", self.run), ("events", self._ports.recorder.run))

    def is_leader(self) -> bool:
        """Every replica answers."""
        return True

    async def stop(self) -> None:
        """Write the events that wait."""
        await self._ports.recorder.flush(FLUSH_S)

    async def run(self) -> None:
        """Relist, follow the rules file and watch objects for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._others.run(), name="objects")
            group.create_task(self.metric_rules.run(), name="MetricRules")
            group.create_task(self._write_statuses(), name="status of MetricRules")
            group.create_task(self.relister.run(), name="relist")
            group.create_task(self._file.follow(self._poll_s), name="rules file")
            if self._backends_file is not None:
                group.create_task(self._ports.backends.run(), name="external backends")
                group.create_task(self._backends_file.follow(self._poll_s), name="backends file")
            if self._sources_file is not None:
                group.create_task(self._sources_file.follow(self._poll_s), name="sources file")
                group.create_task(self._sources.follow(self._poll_s), name="sources")

    def register(self, health: Health) -> None:
        """Make readiness wait for pods and for the first relist, and tell of a bad file."""
        health.add_readiness("pods-synced", self._pods_synced)
        health.add_readiness("first-relist", self._relist_tried)
        health.add_readiness("rules-file", self._rules_read)
        if self.has_backends:
            health.add_readiness("external-backends", self._backends_tried)
        health.add_readiness("metric-rules", self._objects_tried)

    @property
    def outage(self) -> str:
        """Since when and why Prometheus does not answer; empty where it does."""
        return self._ports.client.outage_text()

    def _rules_told(self) -> RulesTold:
        return RulesTold(
            config=self._file.text,
            file=self._flags.text("config"),
            prometheus_url=shown_url(self._flags.text("prometheus-url")),
            relist_interval_s=self.relister.options.reach_s,
            max_sample_age_s=self._flags.seconds("max-sample-age"),
            problem=self.rules_problem,
            service=self._flags.text("service"),
            running_in=self._ports.pod.namespace if self._ports.pod else "",
            namespace_label=self._sources.named.default_access.namespace_label,
            backends=self._ports.backends.told({name for _, name in self._external().sources}),
            prometheus_problem=self.outage,
            rules=[told(state) for state in self.relister.states.values()],
        )

    def _note_listed(self, state: RuleState, seconds: float) -> None:
        if state.rule.origin:
            self._statuses.note(state.rule.namespace)
        if not state.rule.namespace:  # thousands of teams' rules are told in their own status
            self._ports.metrics.relisted(state, seconds)

    async def _write_statuses(self) -> None:
        await self.metric_rules.installed.wait()
        if not self._ports.is_server:
            return
        elector = self._ports.elector
        if elector is None:
            await self._statuses.run(lambda: True)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(elector.run(for_ever))
            group.create_task(self._statuses.run(elector.may_write))

    def _state_of(self, rule: Rule) -> RuleState | None:
        return self.relister.state(rule)

    def _listed(self, section: str) -> MetricRegistry:
        return self._custom() if section == "rules" else self._external()

    def _custom(self) -> MetricRegistry:
        return self.relister.custom

    def _external(self) -> MetricRegistry:
        return self.relister.external

    def _relisted(self) -> None:
        self._reuse.clear()
        self._feed.relisted()

    async def _take_objects(self, rules: RuleSet, namespace: str) -> None:
        await self.relister.replace(rules if namespace else self._everywhere(), namespace)
        if not namespace:
            self._ports.metrics.keep_only(self.relister.states)
        self._statuses.note(namespace)

    def _everywhere(self) -> RuleSet:
        """Return the file's rules and, after them, those of ClusterMetricRules: the later wins."""
        objects, rules = self.metric_rules.rules(""), self._rules
        return structs.replace(
            rules,
            custom=(*rules.custom, *objects.custom),
            external=(*rules.external, *objects.external),
        )

    async def _take(self, rules: RuleSet) -> None:
        self._rules = rules
        await self.relister.replace(self._everywhere())
        self._plans.clear()
        self._reuse.clear()
        metrics = self._ports.metrics
        metrics.keep_only(self.relister.states)
        metrics.reloads.labels("success").inc()
        metrics.config_ok.set(1)
        self._told("RulesReloaded", "the rules file has changed and is in force")

    async def _take_sources(self, named: NamedSources) -> None:
        await self._sources.replace(named)
        self._reuse.clear()
        self._told("SourcesReloaded", "the sources file has changed and is in force")
        self._file.retry()  # what was refused may name a source that has come
        await self.metric_rules.sources_changed()
        await self.relister.relist()

    async def _take_backends(self, named: NamedBackends) -> None:
        await self._ports.backends.replace(named)
        self._told("BackendsReloaded", "the backends file has changed and is in force")

    def _refuse(self, problem: str) -> None:
        self._ports.metrics.reloads.labels("failure").inc()
        self._ports.metrics.config_ok.set(0)
        self._not_reloaded("rules", "rules", problem)

    def _told(self, reason: str, message: str) -> None:
        recorder, pod = self._ports.recorder, self._ports.pod
        if pod is not None:
            recorder.event(pod, "Warning" if "Not" in reason else "Normal", reason, message)

    def _not_reloaded(self, file: str, old: str, problem: str) -> None:
        text = f"the {file} file does not read well, old {old} stay: {problem}"
        self._told(f"{file.capitalize()}NotReloaded", text)

    def _pods_synced(self) -> HealthVerdict:
        pods = self._ports.pods
        if pods.is_synced:
            return HealthVerdict()
        if pods.is_refused:
            # Metrics of anything else need no pods, and no right to see them.
            return HealthVerdict(
                True, "they may not be listed in all namespaces; it is tried again"
            )
        return HealthVerdict(False, "pods are not listed yet")

    def _relist_tried(self) -> HealthVerdict:
        # A rule that comes later is listed while the others serve.
        self._is_tried = self._is_tried or self._is_late or (
            self.metric_rules.absence is None and self.relister.is_tried
        )  # fmt: skip
        return HealthVerdict(self._is_tried, "" if self._is_tried else "rules are being listed")

    def _backends_tried(self) -> HealthVerdict:
        is_tried = self._ports.backends.is_tried
        return HealthVerdict(is_tried, "" if is_tried else "they are being listed")

    def _objects_tried(self) -> HealthVerdict:
        absence = self.metric_rules.absence
        text = "" if absence is None else absence.message
        return HealthVerdict(absence is None or self._is_late, text)

    @property
    def _is_late(self) -> bool:
        # What cannot be listed is answered by nobody; the rest is not to wait for it.
        return asyncio.get_running_loop().time() > self._patient_until

    def _rules_read(self) -> HealthVerdict:
        if self.rules_problem:
            of_sources = self._sources_file is not None and self._sources_file.problem
            what = "rules" if self._file.problem else "sources" if of_sources else "backends"
            return HealthVerdict(
                True, f"the changed {what} file is refused, the old {what} are in force"
            )
        return HealthVerdict()
