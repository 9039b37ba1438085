"""Every verdict and counter-example of ``coalescing.yaml``.

A counter-example is a query that naive widening would change. It must be rejected, and both
its answers must come out of a real Prometheus as they stand in the file.
"""

import re

import pytest
from msgspec.structs import replace

from podscale.core import gotemplate
from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover.proof import Widened, prove
from podscale.feed.prover.tree import (
    Aggregation,
    Binary,
    FunctionCall,
    Subquery,
    VectorSelector,
    parse,
)
from tests.conformance.cases import document, params
from tests.integration.prometheus import PrometheusServer
from tests.unit.feed.verdicts import outcome_of

TIME_S = 1_700_000_000


FILE = document("coalescing.yaml")
COUNTEREXAMPLES = FILE.get("counterexamples", [])


def plan_of(template, api, labels, matchers=(), series="ser"):
    """The plan that the adapter makes of a rule, with the template's constant fields bound."""
    parsed = gotemplate.parse(template)
    key = KeyLabels(
        labels.get("namespace", ""), labels.get("object", ""), labels.get("container", "")
    )
    group_by = [label for label in (key.object, key.container) if label]

    def render(label_matchers, values):
        return parsed.render(
            {
                "Series": series,
                "LabelMatchers": label_matchers,
                "LabelValuesByName": dict(values),
                "GroupBy": "" if api == "external" else ",".join(group_by),
                "GroupBySlice": [] if api == "external" else group_by,
            }
        )

    return QueryPlan(api, template, series, key, render, tuple(matchers))


def unordered(node):
    """The tree with matchers and label lists sorted: their order means nothing."""
    match node:
        case VectorSelector():
            order = sorted(node.matchers, key=lambda m: (m.label, m.op, m.value))
            return replace(node, matchers=tuple(order))
        case FunctionCall():
            return replace(node, arguments=tuple(map(unordered, node.arguments)))
        case Subquery():
            return replace(node, operand=unordered(node.operand))
        case Aggregation():
            return replace(node, operand=unordered(node.operand), labels=tuple(sorted(node.labels)))
        case Binary():
            return replace(
                node,
                left=unordered(node.left),
                right=unordered(node.right),
                labels=tuple(sorted(node.labels)),
                included=tuple(sorted(node.included)),
            )
    return node


@pytest.mark.parametrize("case", params(FILE["cases"]))
def test_verdict(case):
    plan = plan_of(case["template"], case["api"], case["resource_labels"])
    verdict = prove(plan)
    assert outcome_of(verdict) == case["outcome"], verdict
    assert isinstance(verdict, Widened) == case["provable"]
    if not isinstance(verdict, Widened):
        return
    names = () if case["api"] == "external" else ("a", "b")
    assert verdict.skeleton.covers("n1", names)
    wide = parse(verdict.text(("n1", "n2")))
    assert unordered(wide) == unordered(parse(case["widened_example"]))
    if "namespace_label_in_answer" in case:
        assert verdict.carries_namespace == case["namespace_label_in_answer"]
    default = case.get("local_default")
    if default is None:
        assert verdict.default is None
    elif default == "dropped":
        # It has no object label, so only an answer of the external API may have it.
        assert case["api"] != "external" or verdict.default is None
    else:
        assert (verdict.default.value, verdict.default.when) == (default["value"], default["when"])


@pytest.mark.parametrize("case", params(FILE["cases"]))
def test_matchers_of_the_metric_selector_change_no_verdict(case):
    plan = plan_of(case["template"], case["api"], case["resource_labels"], ('tier="x"',))
    assert outcome_of(prove(plan)) == case["outcome"]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """One server over the data of all counter-examples; equal series stand for each other."""
    lines = sorted({line for case in COUNTEREXAMPLES for line in case["data"]})
    samples = [f"{line} {TIME_S - age}" for line in lines for age in range(360, -60, -30)]
    text = "\n".join([*samples, "# EOF\n"])
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), openmetrics=text) as server:
        yield server


def answer(server, api, query, names, namespace=None):
    """The answer as upstream reads it: the last sample of an object, every external sample.

    A widened answer is read for one ``namespace``.
    """
    rows = server.query(query, TIME_S)
    if api == "external":
        return [{"labels": row["metric"], "value": row["value"][1]} for row in rows]
    return {
        row["metric"]["pod"]: row["value"][1]
        for row in rows
        if row["metric"].get("pod") in names
        and namespace in (None, row["metric"].get("namespace", namespace))
    }


@pytest.mark.parametrize("case", params(COUNTEREXAMPLES))
def test_counterexample_is_rejected_and_reproduced(case, prometheus):
    request = case["request"]
    namespace, names = request["namespace"], tuple(request.get("names", ()))
    own = answer(prometheus, case["api"], case["per_request_query"], names)
    wide = answer(prometheus, case["api"], case["widened_query"], names, namespace)
    assert own == case["per_request_answer"]
    assert wide == case["widened_answer"]
    assert (own != wide) == case["differs"]
    assert is_kept_apart(case, namespace, names)


def is_kept_apart(case, namespace, names):
    """Whether the planner would never send the widened query in place of the request's own."""
    labels = {"namespace": "namespace"} | ({"object": "pod"} if names else {})
    template = templated(case["per_request_query"], namespace, names)
    verdict = prove(plan_of(template, case["api"], labels))
    if not isinstance(verdict, Widened) or not verdict.skeleton.covers(namespace, names):
        return True
    # Provable, but never as the naive text: the namespace is grouped by or matched on, the
    # default is applied while reading.
    naive, ours = case["widened_query"], verdict.text(("n1", "n2"))
    if unordered(parse(ours)) != unordered(parse(naive)):
        return True
    # The text is the naive one, and no answer differs: several rows of one object are told
    # apart while reading (tests of the snapshot).
    return not case["differs"]


def templated(query, namespace, names):
    """The rule that renders the request's own query."""
    pod = '<<index .LabelValuesByName "pod">>'
    text = query.replace(
        f'namespace="{namespace}"', 'namespace="<<index .LabelValuesByName "namespace">>"'
    )
    for name in names:
        text = re.sub(f'pod=~?"{re.escape("|".join(names))}"', f'pod=~"{pod}"', text)
        text = text.replace(f'="{name}-base"', f'="{pod}-base"')
    return text.replace('deployment="a-base"', f'deployment="{pod}-base"')
