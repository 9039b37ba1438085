"""Whether an answer is the one that a row demands.

``<now>`` is any time of the present, names in an alternation and containers are sets, the
two queries of a metrics.k8s.io request may come in any order, KGET calls are not compared
(we watch), SAR calls only where the row shows one.
"""

import json
import re
import time
from collections.abc import Iterable
from typing import Any

import yaml

from podscale.kube.client.wire import parse_time
from tests.conformance.adapter_deviations import Expected
from tests.conformance.adapter_wire import Answer

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_PRESENT_S = 120


def assert_same(answer: Answer, expected: Expected) -> None:
    """Fail unless ``answer`` is what ``expected`` demands."""
    assert answer.status == expected.status, answer
    assert answer.content_type == expected.content_type
    if callable(expected.body):
        assert expected.body(answer.body), answer.body
    else:
        assert _comparable(answer.body, answer) == _comparable(expected.body, answer)
    assert _queries(answer.calls) == _queries(expected.calls)
    if any(call.startswith("SAR ") for call in expected.calls):
        assert _reviews(answer.calls) == _reviews(expected.calls)


def _comparable(body: Any, answer: Answer) -> Any:
    if answer.content_type == "application/yaml" and isinstance(body, str):
        body = yaml.safe_load(body)
    return _normal(body)


def _normal(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        # Upstream never says how wide the window behind a value is; we do where we know.
        return {k: _normal(v, k) for k, v in value.items() if k not in ("windowSeconds", "window")
                or isinstance(v, str)}  # fmt: skip
    if isinstance(value, list):
        found = [_normal(item) for item in value]
        return (
            sorted(found, key=lambda c: c["name"]) if key in ("containers", "resources") else found
        )
    if isinstance(value, str) and _is_present(value):
        return "<now>"
    return value


def _is_present(text: str) -> bool:
    return bool(_TIME.fullmatch(text)) and abs(parse_time(text) - time.time()) < _PRESENT_S


def _queries(calls: Iterable[str]) -> list[str]:
    return sorted(
        re.sub(r'"([^"]*\|[^"]*)"', _sorted_names, call)
        for call in calls
        if call.startswith("PROM ")
    )


def _sorted_names(match: "re.Match[str]") -> str:
    return '"{}"'.format("|".join(sorted(match[1].split("|"))))


def _reviews(calls: Iterable[str]) -> list[Any]:
    return [json.loads(call.removeprefix("SAR ")) for call in calls if call.startswith("SAR ")]
