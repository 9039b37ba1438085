"""nodeQuery against the cluster's nodes, where Prometheus answers one question and not the next."""

import pytest

from adapter.discovery.mapping import PresumingMapper
from adapter.doctor import query_checks
from adapter.doctor.evidence import Given, Point, Rejected, Result, Unreachable
from adapter.rules.ruleset import read_rules
from adapter.stages import Finding

RULES = """
resourceRules:
  cpu: &rule
    containerQuery: sum(usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(node_usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: {overrides: {instance: {resource: node}, pod: {resource: pod},
                            namespace: {resource: namespace}}}
    containerLabel: container
  memory: *rule
"""


def judged(of_nodes: Given) -> Finding | None:
    """Return the verdict on nodeQuery, whose values are of addresses, when node-a is asked for."""
    _, rules = read_rules(RULES, "rules.yaml", PresumingMapper())
    assert rules.resource is not None
    way = query_checks.follow_usage(rules.resource.cpu, ["node-a"])
    labels = {"instance": "10.0.0.1:9100", "pod": "web", "container": "app", "namespace": "shop"}
    need = next(way)
    try:
        while True:
            answer = of_nodes if "node-a" in str(need) else Result([Point(labels, 1.0)])
            need = way.send(answer)
    except StopIteration as end:
        found: dict[str, Finding | None] = end.value
        return found["nodeQuery"]


@pytest.mark.parametrize(("of_nodes", "stage", "said"), [
    (Result([]), "ObjectMismatch", "has node-a, and what it finds has the instance 10.0.0.1:9100"),
    (Result([Point({"instance": "node-a"}, 1.0)]), None, ""),
    (Unreachable("reset"), "PrometheusUnreachable", "reset"),
    (Rejected(422, "too many"), "QueryInvalid", "too many"),
])  # fmt: skip
def test_only_an_answer_says_that_nodes_are_not_found(
    of_nodes: Given, stage: str | None, said: str
) -> None:
    found = judged(of_nodes)
    assert (found and found.stage) == stage
    assert found is None or said in found.message
