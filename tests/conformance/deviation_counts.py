"""Of how many cases each rule of ``deviations.yaml`` speaks, in the files that are run.

Nothing is decided here: expectations are rewritten and compared with what they were.
"""

from collections import Counter

from tests.conformance import adapter_deviations as adapter
from tests.conformance import adapter_world as world
from tests.conformance import hpa_deviations as hpa
from tests.conformance import template_deviations as templates
from tests.conformance import vpa_deviations as vpa
from tests.conformance.adapter_cases import rows
from tests.conformance.cases import cases, deviations


def counts() -> dict[str, dict[str, int]]:
    """Return product → rule → number of cases for which it expects another result."""
    found = {"hpa": _hpa(), "vpa": _vpa(), "adapter": _adapter(), "templates": _templates()}
    return {p: {rule: found[p][rule] for rule in deviations(p)} for p in found}


def _hpa() -> Counter[str | None]:
    return Counter(hpa.rule_of(case) for case in cases("hpa.yaml", "hpa-executed.yaml"))


def _vpa() -> Counter[str | None]:
    return Counter(
        vpa.rule_of(case)
        for case in cases("vpa.yaml", only=lambda case: case["compat"] != "parity")
        if vpa.expected_of(case) != case["expected"]
    )


def _adapter() -> Counter[str]:
    objects = {row["kind"]: row["objects"] for row in rows("C1")}
    normal = (world.part_c_prometheus(), world.part_c_config())
    conflicts = (world.conflicts_prometheus(), world.conflicts_config())
    found: Counter[str] = Counter()
    for name in ("C4", "C5", "C6", "C7", "C8", "C8-2", "C9-4"):
        prometheus, config = conflicts if name == "C9-4" else normal
        for row in rows(name):
            mode = {"C8": row[0], "C8-2": "hang"}.get(name, "")
            path, *columns = row[1:] if name == "C8" else row
            options = columns.pop(0) if name == "C7" else {}
            status, content_type, body = columns[:3]
            calls = columns[3] if name not in ("C8", "C8-2") else []
            case = adapter.Case(path, options, prometheus, objects, mode, config)
            _, applied = adapter.deviating(
                case, adapter.Expected(status, content_type, body, calls)
            )
            found.update(applied)
    return found


def _templates() -> Counter[str]:
    texts = [row[0] for name in ("B5", "B6") for row in rows(name)]
    return Counter({rule: sum(map(of, texts)) for rule, of in templates.RULES.items()})
