"""Which VPA decides about a pod: index by target, then selector, then age.

For a pod that is created; the updater shares the order of age. ``vpa/targets.py`` finds the pod's
topmost controller, this is the choice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from podscale.core.selectors.selector import Selector
from podscale.kube.objects.vpa import Vpa, has_startup_boost, update_mode


class OwningController(Struct, frozen=True):
    """The topmost well-known or scalable owner of a pod."""

    namespace: str
    kind: str
    name: str


class Candidate(Struct, frozen=True):
    """A VPA and the selector of its target; None: not looked up yet, or not to be found."""

    vpa: Vpa
    selector: Selector | None


class TargetIndex:
    """VPAs by the target they name; replaced entry by entry as objects change."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._by_target: dict[OwningController, dict[str, Candidate]] = {}
        self._targets: dict[tuple[str, str], OwningController] = {}
        self._in_namespace: Counter[str] = Counter()
        for candidate in candidates:
            self.put(candidate)

    def put(self, candidate: Candidate) -> None:
        """Add a VPA or replace the one of its name; without a target it is not found."""
        vpa = candidate.vpa
        self.remove(vpa.metadata.namespace, vpa.metadata.name)
        target = target_of(vpa)
        if target is not None:
            self._targets[vpa.metadata.namespace, vpa.metadata.name] = target
            self._in_namespace[vpa.metadata.namespace] += 1
            self._by_target.setdefault(target, {})[vpa.metadata.name] = candidate

    def remove(self, namespace: str, name: str) -> None:
        target = self._targets.pop((namespace, name), None)
        if target is None:
            return
        self._in_namespace[namespace] -= 1
        if not self._in_namespace[namespace]:
            del self._in_namespace[namespace]
        named = self._by_target[target]
        del named[name]
        if not named:
            del self._by_target[target]

    def is_used_in(self, namespace: str) -> bool:
        """Return whether any VPA of the namespace has a target."""
        return namespace in self._in_namespace

    def of(self, controller: OwningController) -> Sequence[Candidate]:
        return tuple(self._by_target.get(controller, {}).values())


def target_of(vpa: Vpa) -> OwningController | None:
    target = vpa.spec.target_ref
    if target is None:
        return None
    return OwningController(vpa.metadata.namespace, target.kind, target.name)


def match(labels: Mapping[str, str], candidates: Sequence[Candidate]) -> Candidate | None:
    """Return which of the VPAs of a pod's controller decides: the oldest, then by name.

    ``candidates`` are those that may act at all; see ``acts_at_admission``.
    """
    matching = [
        candidate
        for candidate in candidates
        if candidate.selector is not None and candidate.selector.matches(labels)
    ]
    return min(matching, key=lambda candidate: seniority(candidate.vpa), default=None)


def match_at_admission(
    labels: Mapping[str, str], controller: OwningController | None, index: TargetIndex
) -> Candidate | None:
    """Return the VPA that patches a new pod; a pod without a controller has none."""
    if controller is None:
        return None
    candidates = [c for c in index.of(controller) if acts_at_admission(c.vpa)]
    return match(labels, candidates)


def acts_at_admission(vpa: Vpa) -> bool:
    """Return whether new pods are patched: in every mode but Off, and for a boost in Off."""
    return update_mode(vpa) != "Off" or has_startup_boost(vpa)


def seniority(vpa: Vpa) -> tuple[float, str]:
    """Return the order in which VPAs of one pod come; the first one decides."""
    created = vpa.metadata.creation_timestamp
    return (float("-inf") if created is None else created, vpa.metadata.name)
