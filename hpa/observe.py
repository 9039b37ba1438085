"""From the stores to the observation of one decision: everything but the metric answers.

A steady autoscaler costs a look at versions: pods, rivals and questions are kept in its
entry until something they depend on changes.
"""

from collections.abc import Mapping

from msgspec import Struct

from hpa.catalog import Catalog, Entry
from hpa.decide.observation import MetricAnswer, Observation, Scale
from hpa.decide.pods import Pods
from hpa.decide.settings import Settings
from hpa.decide.spec import HPA
from hpa.podcolumns import Columns
from hpa.questions import Asked, questions
from hpa.rivals import Rivals
from hpa.targets import Seen, Targets
from podscale.core.selector import Selector, SelectorError, parse
from podscale.kube.pods import PodStore
from podscale.kube.restmapper import Mapper
from podscale.kube.wire import OwnerReference


class Look(Struct, frozen=True):
    """One autoscaler as it was found, before its metrics are known."""

    entry: Entry
    hpa: HPA
    seen: Seen
    pods: Pods
    rivals: tuple[str, ...]
    same_target: tuple[str, ...]
    asked: tuple[Asked, ...]  # empty: metrics are not read in this pass

    def observation(self, answers: tuple[MetricAnswer | None, ...]) -> Observation:
        """Return the observation with the answers to ``asked``, in order."""
        return Observation(
            self.hpa, self.seen.scale, self.pods, answers, self.rivals, self.same_target
        )


class Observer:
    """Looks at autoscalers."""

    def __init__(
        self, catalog: Catalog, targets: Targets, pods: PodStore, settings: Settings
    ) -> None:
        self._catalog = catalog
        self._targets = targets
        self._pods = pods
        self._settings = settings
        self._columns = Columns(self._topmost)
        self.rivals = Rivals()

    def look(self, entry: Entry, hpa: HPA, seen: Seen, mapper: Mapper) -> Look:
        """Return what is to be decided on, and what has to be asked for it."""
        scale = seen.scale
        if hpa.options.is_paused or not isinstance(scale, Scale):
            return Look(entry, hpa, seen, Pods(), (), (), ())
        selector = _selector(entry, scale.selector)
        same = self._catalog.same_target(entry)
        if selector is None:
            return Look(entry, hpa, seen, Pods(), (), same, ())
        namespace, name = entry.key
        self.rivals.put(namespace, name, selector)
        self._refresh_pods(entry, selector)
        self._refresh_rivals(entry)
        asked: tuple[Asked, ...] = ()
        if not entry.rivals and not same and _reads_metrics(hpa, scale, self._settings):
            asked = self._questions(entry, hpa, mapper)
        return Look(entry, hpa, seen, entry.pods, entry.rivals, same, asked)

    def forget(self, entry: Entry) -> None:
        """Drop what is kept of an autoscaler that has gone."""
        self.rivals.drop(*entry.key)

    def _refresh_pods(self, entry: Entry, selector: Selector) -> None:
        version = (entry.selector_text, self._pods.version(entry.key[0], selector))
        if version == entry.pods_version:
            return
        entry.pods = self._columns.of(entry.key[0], self._pods.select(entry.key[0], selector))
        entry.pods_version = version

    def _refresh_rivals(self, entry: Entry) -> None:
        namespace, name = entry.key
        version = (entry.pods_version, self.rivals.version(namespace))
        if version == entry.rivals_version:
            return
        distinct: dict[int, Mapping[str, str]] = {}
        for pod in entry.pods.names:
            labels = self._pods.labels(namespace, pod)
            if labels is not None:
                distinct[id(labels)] = labels
        entry.rivals = self.rivals.of(namespace, name, distinct.values())
        entry.rivals_version = version

    def _questions(self, entry: Entry, hpa: HPA, mapper: Mapper) -> tuple[Asked, ...]:
        derived_from = (entry.selector_text, mapper)
        if entry.questions_for != derived_from:
            entry.questions = questions(hpa, entry.selector_text, mapper)
            entry.questions_for = derived_from
        return entry.questions

    def _topmost(self, namespace: str, owner: OwnerReference) -> OwnerReference:
        # Two levels are all that the built-in workloads have; what a custom controller
        # owns is told by its own reference.
        if owner.kind != "ReplicaSet":
            return owner
        found = self._targets.replica_sets.get(namespace, owner.name)
        above = found.metadata.controller if found is not None else None
        return above or owner


def _selector(entry: Entry, text: str) -> Selector | None:
    if entry.selector is None or text != entry.selector_text:
        entry.selector_text, entry.selector = text, None
        if text:
            try:
                entry.selector = parse(text)
            except SelectorError:
                entry.selector = None
    return entry.selector


def _reads_metrics(hpa: HPA, scale: Scale, settings: Settings) -> bool:
    """Whether ``decide`` comes as far as the metrics."""
    current = scale.spec_replicas
    if current == 0:
        return settings.gates.scale_to_zero and any(
            each.type == "ScaledToZero" and each.status == "True" for each in hpa.status.conditions
        )
    return hpa.min_replicas <= current <= hpa.max_replicas
