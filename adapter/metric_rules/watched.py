"""Watches rules that are objects, and keeps the lists of metrics by them.

Each namespace's own rules are one set, those of everywhere (the file's and ClusterMetricRules)
another: a change of one touches no other. Where the CRDs are not installed there are none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import structlog

from adapter.discovery.registry import NOT_LISTED_YET
from adapter.metric_rules.objects import (
    CLUSTER_METRIC_RULES,
    GROUP,
    METRIC_RULES,
    TOO_MANY_RULES,
    VERSION,
    RuleRefusal,
    StoredMetricRule,
    beyond_bounds,
    compiled,
)
from adapter.rules.config import Config
from adapter.rules.ruleset import Rule, RuleSet
from adapter.sources.sources_file import NamedSources
from podscale.core.metrics import Unavailable
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, KubeError, NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Change, Store

log = structlog.get_logger(__name__)

_LOOK_S = 30.0  # for CRDs that are not there yet
_PAUSE_S = 2.0  # what changes within it is taken in together: each time all caches are cleared


# Works with the rules of a namespace, or ("") with those of everywhere.
TakeRules = Callable[[RuleSet, str], Awaitable[None]]


class WatchedMetricRules:
    """The objects, and the rule or the refusal that each comes to."""

    def __init__(
        self,
        api: Api,
        discovery: ApiDiscovery,
        sources: Callable[[], NamedSources],
        take: TakeRules,
        look_s: float = _LOOK_S,
    ) -> None:
        self._api = api
        self._discovery = discovery
        self._sources = sources
        self._take = take
        self._look_s = look_s
        self._stores: Mapping[Resource, Store[StoredMetricRule]] = {
            resource: Store(keep=StoredMetricRule.kept)
            for resource in (METRIC_RULES, CLUSTER_METRIC_RULES)
        }
        self._found: dict[str, dict[str, Rule | RuleRefusal]] = {}  # by namespace and name
        self._taking = asyncio.Lock()
        self.installed = asyncio.Event()  # the CRDs are there
        self._unread = set(self._stores)  # of which not all objects are taken in

    @property
    def absence(self) -> Unavailable | None:
        """Why it is not known which rules there are; ``None``: all are taken in, or there can be
        none."""
        for resource in self._unread:
            error = self._stores[resource].freshness().error
            text = f"{resource.plural} are not read yet: {error or 'their first list is under way'}"
            return Unavailable(NOT_LISTED_YET, text)
        return None

    @property
    def namespaces(self) -> Collection[str]:
        """Those that have objects; "" stands for ClusterMetricRules."""
        return self._found.keys()

    def objects(self, namespace: str) -> Iterable[tuple[StoredMetricRule, Rule | RuleRefusal]]:
        """Yield the objects of a namespace, or ("") the ClusterMetricRules, by name."""
        store = self._stores[METRIC_RULES if namespace else CLUSTER_METRIC_RULES]
        for name, found in sorted(self._found.get(namespace, {}).items()):
            stored = store.get(namespace, name)
            if stored is not None:
                yield stored, found

    def accept(self, stored: StoredMetricRule) -> None:
        """Take in the answer to our own write."""
        resource = METRIC_RULES if stored.metadata.namespace else CLUSTER_METRIC_RULES
        self._stores[resource].accept(stored)

    def rules(self, namespace: str) -> RuleSet:
        """Return the rules of a namespace's objects, or ("") of ClusterMetricRules, by name."""
        found = [each for _, each in sorted(self._found.get(namespace, {}).items())]
        rules = [each.holds if isinstance(each, RuleRefusal) else each for each in found]
        return RuleSet(
            Config(),
            tuple(each for each in rules if each and each.section == "rules"),
            tuple(each for each in rules if each and each.section == "externalRules"),
        )

    async def run(self) -> None:
        """Watch for ever, from when there are CRDs."""
        await self._wait_installed()
        async with asyncio.TaskGroup() as group:
            for resource, store in self._stores.items():
                source = WatchSource(resource, StoredMetricRule)
                group.create_task(self._follow(resource), name=f"follow {resource.plural}")
                group.create_task(Reflector(self._api, source, store).run())
            group.create_task(self._try_again())

    async def sources_changed(self) -> None:
        """Compile every object again: what it may ask may have changed."""
        for namespace in list(self._found):
            await self._change(namespace, list(self._found.get(namespace, ())))

    async def _try_again(self) -> None:
        """Compile those again that name a resource which the cluster may have by now."""
        resources = self._discovery.mapper.resources
        while True:
            await asyncio.sleep(self._look_s)
            before, resources = resources, self._discovery.mapper.resources
            if resources == before:
                continue
            for namespace, found in list(self._found.items()):
                if any(isinstance(each, RuleRefusal) for each in found.values()):
                    await self._change(namespace, list(found))

    async def _wait_installed(self) -> None:
        is_told = False
        while not self.installed.is_set():
            try:
                await self._discovery.resource_for(METRIC_RULES.plural, GROUP, VERSION)
                self.installed.set()
                return
            except NoMatch:
                if not is_told:
                    log.info("no MetricRules are watched: their CRDs are not installed")
                is_told = True
                self._unread.clear()
            except KubeError as error:
                if isinstance(error, Forbidden):
                    self._unread.clear()
                log.debug("whether there are MetricRules is not known", error=str(error))
            await asyncio.sleep(self._look_s)

    async def _follow(self, resource: Resource) -> None:
        store, is_changed = self._stores[resource], asyncio.Event()
        names: dict[str, dict[str, None]] = {}  # by namespace: of objects that changed

        def note(change: Change[StoredMetricRule]) -> None:
            new, old = change.new, change.old
            if new is None or old is None or old.spec != new.spec:
                names.setdefault(change.namespace, {})[change.name] = None
                is_changed.set()

        store.subscribe(note)
        await store.wait_listed()
        if not len(store):
            self._unread.discard(resource)
        while True:
            await is_changed.wait()
            is_changed.clear()
            for namespace in list(names):
                await self._change(namespace, names.pop(namespace), is_news=True)
            self._unread.discard(resource)
            await asyncio.sleep(_PAUSE_S)

    async def _change(self, namespace: str, names: Iterable[str], *, is_news: bool = False) -> None:
        """Compile those of these names again; ``is_news``: their objects have changed."""
        store = self._stores[METRIC_RULES if namespace else CLUSTER_METRIC_RULES]
        async with self._taking:
            known = self._found.setdefault(namespace, {})
            changed: dict[str, StoredMetricRule] = {}
            for name in names:
                if (new := store.get(namespace, name)) is None:
                    is_news |= known.pop(name, None) is not None
                else:
                    changed[name] = new
            objects = {stored.metadata.name: stored for stored, _ in self.objects(namespace)}
            objects |= changed
            beyond = beyond_bounds(objects.values())
            for name, stored in objects.items():
                refusal = beyond.get(stored.origin)
                was_beyond = name in known and known[name].fingerprint.startswith(TOO_MANY_RULES)
                if name in changed or (refusal is not None) != was_beyond:
                    is_news |= self._compile(stored, refusal)
                    await asyncio.sleep(0)  # one of 500 operators takes a tenth of a second
            if is_news:
                await self._take(self.rules(namespace), namespace)
            if not self._found.get(namespace, True):
                del self._found[namespace]

    def _compile(self, stored: StoredMetricRule, beyond: RuleRefusal | None) -> bool:
        meta = stored.metadata
        found: Rule | RuleRefusal
        try:
            found = compiled(stored, self._discovery.mapper, self._sources(), beyond)
        except Exception as error:  # a bug, or a template that finds one: of this object only
            log.exception("rule not compiled", rule=stored.origin)
            found = RuleRefusal("Invalid", f"{type(error).__name__}: see the adapter's log")
        known = self._found.setdefault(meta.namespace, {})
        is_new = meta.name not in known or known[meta.name].fingerprint != found.fingerprint
        if is_new:
            known[meta.name] = found
        return is_new
