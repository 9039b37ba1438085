"""From the stores to the observation of one decision: everything but the metric answers.

A steady autoscaler costs a look at versions: pods, rivals and questions are kept in its
entry until something they depend on changes.
"""

from collections.abc import Mapping
from itertools import count

from msgspec import Struct

from hpa.cluster.catalog import AutoscalerEntry, Catalog
from hpa.cluster.claims import InTreeClaims
from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.podcolumns import SelectedPods
from hpa.cluster.questions import Asked, is_question, questions
from hpa.cluster.targets import ScaleTargets, TargetScale
from hpa.decide.observation import MetricAnswer, Observation, Scale
from hpa.decide.pods import Pods
from hpa.decide.settings import Settings
from hpa.decide.spec import HPA
from podscale.core.selector import Selector, SelectorError, parse
from podscale.kube.change import Change
from podscale.kube.objects.scale import Workload
from podscale.kube.pods import PodStore
from podscale.kube.restmapper import Mapper
from podscale.kube.wire import OwnerReference

# How often each of these has changed: the pods and the selectors of a namespace, targets of
# autoscalers anywhere, and those of in-tree ones.
_State = tuple[int, int, int, int]


class Look(Struct, frozen=True, eq=False, gc=False):
    """One autoscaler as it was found, before its metrics are known. It is kept in its ``entry``
    until that goes or is looked at differently; that it is let go then is the catalog's to see to,
    since the collector does not look at it."""

    entry: AutoscalerEntry
    hpa: HPA
    seen: TargetScale
    pods: Pods
    rivals: tuple[str, ...]
    same_target: tuple[str, ...]
    asked: tuple[Asked, ...] = ()  # empty: metrics are not read in this pass
    version: str = ""  # resourceVersion of the autoscaler: what its status is written against
    knows_owners: bool = True  # False: pods may be left out because their owner is not known
    is_plain: bool = False  # every one of ``asked`` is a question

    def observation(self, answers: tuple[MetricAnswer | None, ...]) -> Observation:
        """Return the observation with the answers to ``asked``, in order."""
        return Observation(
            self.hpa, self.seen.scale, self.pods, answers, self.rivals, self.same_target
        )


class AutoscalerObserver:
    """Looks at autoscalers."""

    def __init__(
        self,
        catalog: Catalog,
        rivals: OverlappingHpas,
        claims: InTreeClaims,
        targets: ScaleTargets,
        pods: PodStore,
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._rivals = rivals
        self._claims = claims
        self._targets = targets
        self._pods = pods
        self._settings = settings
        self._columns = SelectedPods(self._topmost)
        self._states: dict[str, _State] = {}  # by namespace: the last one
        # Of namespaces that have a ReplicaSet: how many, and when one changed hands last.
        self._sets: dict[str, int] = {}
        self._adoptions: dict[str, int] = {}
        # One for all: a namespace that went and came back shows no number that it had before.
        self._moments = count(1)
        targets.replica_sets.subscribe(self._note_adoption)

    def look(self, entry: AutoscalerEntry, hpa: HPA, seen: TargetScale, mapper: Mapper) -> Look:
        """Return what is to be decided on, and what has to be asked for it: the very same as the
        last time, while nothing that it depends on has changed."""
        state = self._state(entry.key[0])
        kept = entry.look
        if (
            isinstance(kept, Look)
            and kept.hpa is hpa
            and kept.seen is seen
            and entry.look_for is state
            # These depend on what is known of owners at the time, and of kinds.
            and not hpa.options.pods_by_owner
            and not entry.describes_objects
        ):
            return kept
        entry.look = entry.look_for = None
        found = self._look(entry, hpa, seen, mapper)
        if isinstance(kept, Look) and _are_alike(kept, found):
            found = kept
        # Looking registers our selector: now it is the state that was looked at.
        entry.look, entry.look_for = found, self._state(entry.key[0])
        return found

    def _state(self, namespace: str) -> _State:
        """Return what changes with anything that a look depends on beside its own objects."""
        state = (
            self._pods.changed(namespace),
            self._rivals.version(namespace),
            self._catalog.targets_changed,
            self._claims.changed,
        )
        if len(self._states) > 2 * len(self._catalog) + 1000:
            self._states.clear()  # of namespaces that went
        known = self._states.get(namespace)
        if known != state:  # one for all of the namespace
            known = self._states[namespace] = state
        return known

    def _look(self, entry: AutoscalerEntry, hpa: HPA, seen: TargetScale, mapper: Mapper) -> Look:
        scale, version = seen.scale, entry.written.metadata.resource_version
        if hpa.options.is_paused or not isinstance(scale, Scale):
            return Look(entry, hpa, seen, Pods(), (), (), version=version)
        selector = _selector(entry, scale.selector)
        same = (*self._catalog.same_target(entry), *self._claims.of(entry.target))
        if selector is None:
            return Look(entry, hpa, seen, Pods(), (), same, version=version)
        self._rivals.change(*entry.key, selector)
        self._refresh(entry, selector, by_owner=hpa.options.pods_by_owner)
        asked: tuple[Asked, ...] = ()
        is_plain = False
        if not entry.rivals and not same and _reads_metrics(hpa, scale, self._settings):
            asked = self._questions(entry, hpa, mapper)
            is_plain = entry.asks_plainly
        knows_owners = not hpa.options.pods_by_owner or self._knows_owners(entry)
        return Look(
            entry, hpa, seen, entry.pods, entry.rivals, same, asked, version, knows_owners, is_plain
        )

    def _refresh(self, entry: AutoscalerEntry, selector: Selector, *, by_owner: bool) -> None:
        namespace = entry.key[0]
        # Nothing in the whole namespace changed: cheaper to see than that these pods did not.
        seen = (
            self._pods.changed(namespace),
            self._rivals.version(namespace),
            self._adoptions.get(namespace, 0) if by_owner else -1,
            selector,
        )
        if seen != entry.seen_pods:
            self._refresh_pods(entry, selector, by_owner=by_owner)
            self._refresh_rivals(entry)
            entry.seen_pods = seen

    def _refresh_pods(self, entry: AutoscalerEntry, selector: Selector, *, by_owner: bool) -> None:
        namespace = entry.key[0]
        adoptions = self._adoptions.get(namespace, 0) if by_owner else -1
        before = entry.pods_found if entry.pods_found_by is selector else None
        entry.pods_found = self._pods.unchanged(namespace, lambda: selector, before)
        entry.pods_found_by = selector
        version = entry.pods_found if adoptions < 0 else (entry.pods_found, adoptions)
        if version == entry.pods_version:
            return
        entry.pods = self._columns.of(namespace, self._pods.select(namespace, selector))
        entry.pods_version = version

    def _refresh_rivals(self, entry: AutoscalerEntry) -> None:
        namespace, name = entry.key
        version = (entry.pods_version, self._rivals.version(namespace))
        if version == entry.rivals_version:
            return
        distinct: dict[int, Mapping[str, str]] = {}
        for pod in entry.pods.names:
            labels = self._pods.labels(namespace, pod)
            if labels is not None:
                distinct[id(labels)] = labels
        entry.rivals = self._rivals.of(namespace, name, distinct.values())
        entry.rivals_version = version

    def _questions(self, entry: AutoscalerEntry, hpa: HPA, mapper: Mapper) -> tuple[Asked, ...]:
        # The mapper is another one after each discovery; only described objects need it.
        text = entry.selector_text
        derived_from = (text, mapper) if entry.describes_objects else text
        if entry.questions_for != derived_from:
            entry.questions = questions(hpa, entry.selector_text, mapper)
            entry.asks_plainly = all(is_question(each) for each in entry.questions)
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

    def _knows_owners(self, entry: AutoscalerEntry) -> bool:
        """Whether every pod's topmost controller could be told: a pod whose ReplicaSet is not
        known counts for nobody, and fewer pods would ask for fewer."""
        sets = self._targets.replica_sets
        if not sets.is_current(namespace=entry.key[0]):
            return False
        names = (owner.partition("/") for owner in entry.pods.owners)
        return all(
            kind != "ReplicaSet" or sets.get(entry.key[0], name) is not None
            for kind, _, name in names
        )

    def _note_adoption(self, change: Change[Workload]) -> None:
        old, new, namespace = change.old, change.new, change.namespace
        if old is not None and new is not None:
            if old.metadata.controller != new.metadata.controller:
                self._adoptions[namespace] = next(self._moments)
            return
        sets = self._sets.get(namespace, 0) + (new is not None) - (old is not None)
        if sets:
            self._sets[namespace], self._adoptions[namespace] = sets, next(self._moments)
        else:
            self._sets.pop(namespace, None)
            self._adoptions.pop(namespace, None)


def _are_alike(one: Look, other: Look) -> bool:
    """Whether they are of the same objects; what they are made of is kept where it lasts."""
    return (
        one.hpa is other.hpa
        and one.seen is other.seen
        and one.pods is other.pods
        and one.asked == other.asked
        and one.rivals == other.rivals
        and one.same_target == other.same_target
        and one.knows_owners == other.knows_owners
    )


def _selector(entry: AutoscalerEntry, text: str) -> Selector | None:
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
