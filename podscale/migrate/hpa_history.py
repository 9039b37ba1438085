"""Plain HPAs with Prometheus history at hand: what the in-tree controller, fed by
prometheus-adapter, and the new configuration would have asked for.

Both read the same rules; what differs is what is made of silence and of NaN. Metrics whose
proposal depends on the size at that moment (targets of type Value, utilisation) are left out.
"""

import re
from collections.abc import Mapping, Sequence

from adapter.errors import RuleQueryError
from adapter.rules.ruleset import Rule, RuleSet
from podscale.core import quantity
from podscale.core.selectors import selector
from podscale.migrate.compare import Comparable, ComparedMetric
from podscale.migrate.documents import Object, at, list_at, map_at, name_of, text_at

Names = Mapping[str, Sequence[str]]  # "rules[3]" -> the series names that its query finds

_ONE, _OTHER = "podscaleone", "podscaletwo"  # stand for pods that nobody remembers the names of
_AVERAGED = ("Pods", "Object", "External")


def rules_wanted(hpas: Sequence[Object], rules: RuleSet) -> list[Rule]:
    """Return the rules whose series names have to be known: those of the sections in use."""
    kinds = {text_at(metric, "type") for hpa in hpas for metric in list_at(hpa, "spec", "metrics")}
    found = list(rules.custom) if kinds & {"Pods", "Object"} else []
    return found + (list(rules.external) if "External" in kinds else [])


def comparable(hpa: Object, rules: RuleSet, names: Names) -> Comparable:
    """Return what of an HPA can be compared."""
    namespace, name = name_of(hpa)
    metrics: list[ComparedMetric] = []
    left_out: list[str] = []
    for metric in list_at(hpa, "spec", "metrics"):
        made = _metric(metric, hpa, rules, names)
        if isinstance(made, ComparedMetric):
            metrics.append(made)
        else:
            left_out.append(made)
    least, most = at(hpa, "spec", "minReplicas"), at(hpa, "spec", "maxReplicas")
    return Comparable(
        f"HorizontalPodAutoscaler {'/'.join(filter(None, (namespace, name)))}",
        metrics,
        least if isinstance(least, int) else 1,
        most if isinstance(most, int) else 1,
        None,
        left_out,
        old="the in-tree controller with prometheus-adapter",
    )


def _metric(metric: Object, hpa: Object, rules: RuleSet, names: Names) -> ComparedMetric | str:
    kind = text_at(metric, "type")
    if kind not in _AVERAGED:
        return f"{kind} (it comes from metrics.k8s.io)"
    about = map_at(metric, kind.lower())
    name = text_at(about, "metric", "name")
    average = text_at(about, "target", "averageValue")
    if not average:
        return f"{name} (its target depends on the size)"
    try:
        target = quantity.parse(average).milli / 1000
    except quantity.QuantityError:
        return f"{name} (its target {average!r} is no quantity)"
    if target <= 0:
        return f"{name} (its target is not above 0)"
    section = rules.external if kind == "External" else rules.custom
    # Of rules that expose one name the last answers.
    for rule in reversed(section):
        for series in names.get(rule.id, ()):
            if rule.keeps(series) and rule.namer.name(series) == name:
                query = _query(rule, series, kind, about, hpa)
                if query is None:
                    return f"{name} (no query can be made)"
                return ComparedMetric(
                    name, query, target, False, is_nan_zero=True, takes_several=True
                )
    return f"{name} (no rule of the input exposes it)"


def _query(rule: Rule, series: str, kind: str, about: Object, hpa: Object) -> str | None:
    namespace = name_of(hpa)[0]
    try:
        chosen = selector.from_wire(map_at(about, "metric", "selector"))
        if kind == "External":
            return rule.query.build_external(series, namespace, chosen)
        if kind == "Object":
            described = map_at(about, "describedObject")
            resource = _plural(text_at(described, "kind"))
            return rule.query.build(
                series, resource, namespace, [text_at(described, "name")], chosen
            )
        query = rule.query.build(series, "pods", namespace, [_ONE, _OTHER], chosen)
    except (RuleQueryError, selector.SelectorError):
        return None
    target = re.escape(text_at(hpa, "spec", "scaleTargetRef", "name"))
    # Pods of a Deployment, or of a StatefulSet: name, then what their controllers add.
    pattern = f"{target}-([a-z0-9]+-[a-z0-9]{{5}}|[0-9]+)".replace("\\", "\\\\")
    return query.replace(f"{_ONE}|{_OTHER}", pattern)


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower}es" if lower.endswith(("s", "x")) else f"{lower}s"
