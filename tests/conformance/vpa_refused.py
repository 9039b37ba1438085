"""Patches that the API server would refuse: upstream sends them, we do not (attacks ring).

Judged by the API server's rules as the property tests write them down, on the patched pod.
"""

import copy
from typing import Any

from podscale.core import quantity
from podscale.sandbox.objects.patch import json_patch
from tests.conformance.vpa_shared import Json
from tests.property.vpa.test_acceptance import refusals

_SENT = {
    **dict.fromkeys(
        ("admission_patch", "resource_patch", "startup_boost_patch", "inplace_resource_patch"),
        "patches",
    ),
    "inplace_patch": "resize_patches",
}


def without_refused(kind: str, inputs: Json, told: Json) -> Json:
    """Return upstream's patches of a case; none where the API server would refuse the pod."""
    key = _SENT.get(kind)
    if key is None or not any(map(_is_amount, told.get(key) or ())):
        return told
    ranges = [inputs.get(f"{of}_limit_range") for of in ("container", "pod")]
    if not refusals(_patched(inputs["pod"], told[key]), *ranges):
        return told
    nothing = {name: [] for name, value in told.items() if isinstance(value, list)}
    return {**told, **nothing, **({"error": True} if "error" in told else {})}


def _patched(pod: Json, entries: list[dict[str, Any]]) -> Json:
    made = copy.deepcopy(pod)
    for container in made["spec"]["containers"]:
        written = container.get("resources") or {}
        container["resources"] = {
            field: {name: _plain(amount) for name, amount in (written.get(field) or {}).items()}
            for field in ("requests", "limits")
        }
    amounts = [{**entry, "value": _plain(entry["value"])} for entry in filter(_is_amount, entries)]
    return json_patch(made, amounts)


def _plain(amount: Any) -> str:
    return str(quantity.from_wire(amount))


def _is_amount(entry: dict[str, Any]) -> bool:
    return "/resources/" in entry["path"] and not isinstance(entry["value"], dict)
