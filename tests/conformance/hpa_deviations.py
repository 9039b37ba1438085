"""Where we differ from kube-controller-manager on purpose, as rules over marked defects.

``deviations.yaml`` lists the rules and their reasons; see ``vpa_deviations``.
"""

from collections.abc import Callable, Mapping

from tests.conformance.cases import Case, deviations


def rule_of(case: Case) -> str | None:
    """Return the name of the rule that speaks of a case; only marked defects have one."""
    if case.get("compat") != "upstream_defect":
        return None
    return next((name for name in deviations("hpa") if RULES[name](case)), None)


def sum_of(case: Case) -> int:
    """Return the exact sum of the external values of a case."""
    values = case["inputs"].get("values") or case["inputs"].get("external_metric") or ()
    return sum(value for value in values if isinstance(value, int))


def _sums_below_zero(case: Case) -> bool:
    return sum_of(case) < 0


RULES: Mapping[str, Callable[[Case], bool]] = {"negative-sum": _sums_below_zero}
