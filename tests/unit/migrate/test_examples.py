"""Every example configuration of prometheus-adapter, its chart and kube-prometheus (cases D1 to
D5): through the lints and through migrate, with the outcome as reviewed.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.migrating import migrate

CASES = Path(__file__).parents[2] / "conformance" / "cases" / "adapter"
SNAPSHOT = Path(__file__).parent / "snapshots" / "examples.json"
QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def examples() -> Iterator[tuple[str, str]]:
    """Yield a name and a rules file for each row; fragments are completed to a rule."""
    for number in range(1, 6):
        lines = (CASES / f"D{number}.jsonl").read_text().splitlines()
        for i, line in enumerate(lines):
            yield f"D{number}-{i}", yaml.safe_dump(rules_of(json.loads(line)), sort_keys=False)


def rules_of(row: dict[str, Any]) -> dict[str, Any]:
    if "resourceRules" in row:
        return row
    for key, value in row.items():
        if "resource example" in key:
            return {"resourceRules": value}
        if key == "externalRule" or "external example" in key:
            return {"externalRules": [complete(value)]}
        if key == "rule" or "example" in key or key.startswith("ci/"):
            return {"rules": [complete(value)]}
    if row.pop("external", False):
        return {"externalRules": [complete(row)]}
    row.pop("file", None)
    return {"rules": [complete(row)]}


def complete(rule: dict[str, Any]) -> dict[str, Any]:
    return {"seriesQuery": "some_series", "metricsQuery": QUERY, **rule}


EXAMPLES = dict(examples())


def test_every_row_is_there():
    assert len(EXAMPLES) == 20


def test_examples_are_taken_as_reviewed():
    found = {}
    for name, text in EXAMPLES.items():
        outcome = migrate(text, name)
        found[name] = {
            "read": list(outcome.read),
            "lost": [f"{r.about}: {r.text}" for r in outcome.lost],
            "lints": [f"{r.about}: {r.text}" for r in (*outcome.broken, *outcome.differs)],
        }
    if os.environ.get("PODSCALE_WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(SNAPSHOT.read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_example_is_refused(name):
    outcome = migrate(EXAMPLES[name], name)
    assert outcome.lost == []
    assert outcome.read
