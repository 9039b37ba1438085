"""What migrate prints for inputs as people have them, as reviewed.

After a change that is meant, ``PODSCALE_WRITE_SNAPSHOTS=1`` writes the snapshots anew, and the
difference is reviewed before it is committed.
"""

import os
from pathlib import Path

import pytest
import yaml

from adapter.discovery.listing import MetricSource
from adapter.discovery.mapping import PresumingMapper
from adapter.queries.plans import Plans
from adapter.rules import config
from adapter.rules.ruleset import compile_rules
from hpa.decide.api.options import read_options
from podscale.core.selectors.selector import Selector
from podscale.feed.prover.tree import parse
from podscale.migrate.reader import render, rules_yaml
from tests.kit.migrating import migrate

HERE = Path(__file__).parent
INPUTS = sorted((HERE / "inputs").glob("*.yaml"))
KEDA = [each for each in INPUTS if each.name.startswith("keda-")]


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", INPUTS, ids=named)
def test_output_is_as_reviewed(path):
    printed = render(migrate(path.read_text(), path.name))
    snapshot = HERE / "snapshots" / path.name
    if os.environ.get("PODSCALE_WRITE_SNAPSHOTS"):
        snapshot.write_text(printed)
    assert printed == snapshot.read_text()


@pytest.mark.parametrize("path", INPUTS, ids=named)
def test_output_is_one_stream_of_yaml(path):
    outcome = migrate(path.read_text(), path.name)
    documents = [each for each in yaml.safe_load_all(render(outcome)) if each is not None]
    assert len(documents) == len(outcome.manifests) + bool(outcome.rules) + bool(outcome.sources)


@pytest.mark.parametrize("path", KEDA, ids=named)
def test_rules_load_and_each_external_metric_has_one(path):
    outcome = migrate(path.read_text(), path.name)
    rules = compile_rules(config.parse(rules_yaml(outcome)), PresumingMapper())
    names = {rule.namer.name("anything") for rule in rules.external}
    for rule in rules.external:
        parse(rule.series_query)
        parse(Plans().metric(MetricSource(rule, "s"), "", True, Selector(), "").text("shop", ()))
    for hpa in outcome.manifests:
        metrics = hpa["spec"]["metrics"]
        used = {m["external"]["metric"]["name"] for m in metrics if m["type"] == "External"}
        assert used <= names


@pytest.mark.parametrize("path", KEDA, ids=named)
def test_annotations_read_as_they_are_meant(path):
    for hpa in migrate(path.read_text(), path.name).manifests:
        options = read_options(hpa["metadata"].get("annotations", {}))
        assert options.problems == ()
        names = {
            m["external"]["metric"]["name"]
            for m in hpa["spec"]["metrics"]
            if m["type"] == "External"
        }
        assert {name for name, _ in options.fallbacks} in (set(), names)


def test_at_least_ten_shapes_of_scaled_objects_are_kept():
    assert len(KEDA) >= 10
