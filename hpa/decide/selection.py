"""Whose pods these are: the check before any metric is read.

Follows ``validateAndParseSelector``, Kubernetes 1.37. Two HPAs that select one pod stand
still, both; ``hpa.cluster.overlapping_hpas`` finds them.
"""

from collections.abc import Iterable
from functools import lru_cache

from hpa.decide.conditions import NO_SELECTOR
from hpa.decide.decision import Conflict
from hpa.decide.observation import Observation, Scale
from hpa.decide.settings import Settings
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import SelectorError, parse

_LONGEST_KEPT = 256  # characters; whoever writes a Deployment may select by a megabyte


def check(observation: Observation, scale: Scale, settings: Settings) -> Conflict | None:
    """Return why the pods cannot be told, or None."""
    if not scale.selector:
        return Conflict("SelectorMissing", "selector is required")
    is_short = len(scale.selector) <= _LONGEST_KEPT
    problem = (_kept_problem if is_short else _problem)(scale.selector)
    if problem is not None:
        text = f"couldn't convert selector into a corresponding internal selector object: {problem}"
        return Conflict("SelectorInvalid", text)
    rivals = {*observation.rivals, *observation.same_target}
    if not rivals:
        return None
    hpa = observation.hpa
    # Upstream names them in random order, so that its text changes from pass to pass; the
    # optimized store stops at the second.
    every = {hpa.name, *rivals}
    listed = _listed(hpa.namespace, every)
    text = f"pods by selector {scale.selector} are controlled by multiple HPAs: {listed}"
    if settings.is_after_1_36:
        some = {hpa.name, min(rivals)} if settings.gates.optimized_selector_store else every
        text = f"pods by selector {scale.selector} are controlled by more than one HPA"
        text += f" (e.g. {_listed(hpa.namespace, some)})"
    if not observation.rivals:
        target = hpa.target
        text = f"{target.kind} {target.name} is the target of multiple HPAs: {listed}"
    return Conflict("AmbiguousSelector", text, is_same_target=bool(observation.same_target))


def _listed(namespace: str, names: Iterable[str]) -> str:
    return f"[{' '.join(f'{namespace}/{name}' for name in sorted(names))}]"


def words_of(conflict: Conflict) -> tuple[str, str, str]:
    """Return upstream's reason of the event, and reason and message of ScalingActive."""
    match conflict.reason:
        case "SelectorMissing":
            return "SelectorRequired", "InvalidSelector", NO_SELECTOR
        case "SelectorInvalid":
            return "InvalidSelector", "InvalidSelector", conflict.text
    return "AmbiguousSelector", "AmbiguousSelector", conflict.text


def _problem(text: str) -> str | None:
    try:
        parse(text)
    except SelectorError as error:
        return since_1_36(str(error))
    return None


_kept_problem = lru_cache(maxsize=65536)(_problem)
