"""The ``hpa`` cases of ``explain.yaml``: one decision, concluded and explained."""

import json
from typing import Any

from hpa.decide.conclusion import conclude
from hpa.decide.reconcile import decide
from hpa.explain.explanation import explain
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case
from tests.conformance.hpa_inputs import NOW

LABELS = {"app": "web"}


def explained(case: Case) -> dict[str, Any]:
    """Return the JSON form of the explanation."""
    inputs = dict(case["inputs"])
    inputs["pods"] = [{"labels": LABELS, **pod} for pod in inputs["pods"]]
    decision = decide(given.observation(inputs), given.past(inputs), given.settings(case), NOW)
    done = conclude(decision, given.outcome(inputs), NOW)
    explanation = explain(done.trace)
    sentences = {"sentences": explanation.sentences}
    form = {**explanation.to_json(), **explanation.decision, **sentences}
    return dict(json.loads(json.dumps(form)))


def check(case: Case) -> None:
    expected = case["expected"]
    found = explained(case)
    assert found["first_reason"] == expected["first_reason"], found
    assert set(expected.get("also", [])) <= set(found["also"]), found
    assert not set(expected.get("never", [])) & {found["first_reason"], *found["also"]}, found
    for key in ("replicas", "decided", "proposals"):
        if key in expected:
            assert found.get(key) == expected[key], (key, found)
    if "replicas" not in expected:
        assert "replicas" not in found
    for key, value in expected.get("names", {}).items():
        assert found["facts"].get(key) == value, (key, found["facts"])
    assert found["sentences"]
    assert found["change"]
