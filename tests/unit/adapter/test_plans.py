"""Plans render what upstream renders, once per rule, series, resource and selector."""

import pytest

from adapter.discovery.listing import MetricSource
from adapter.errors import NoLabel, RuleQueryError, UnsupportedOperator
from adapter.queries.plans import Plans
from podscale.core.selectors import selector
from podscale.core.selectors.selector import Selector
from tests.unit.adapter.world import RULES, rules

QUERY = "'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'"
RULE = rules().custom[0]
SOURCE = MetricSource(RULE, "http_requests_total")


def custom(resource="pods", text="", scoped=True, plans=None, source=SOURCE):
    wanted = selector.parse(text)
    return (plans or Plans()).metric(source, resource, scoped, wanted, text)


@pytest.mark.parametrize(("names", "of_objects"), [(("a",), '="a"'), (("a", "b.c"), '=~"a|b.c"')])
@pytest.mark.parametrize(("text", "conditions"), [
    ("", ""), ("x=1", 'x="1",'), ("x in (a,b),!y", 'x=~"a|b",y="",'),
    ("namespace=other", 'namespace="other",'),
])  # fmt: skip
@pytest.mark.parametrize(("resource", "namespace", "label"), [
    ("pods", "shop", "pod"), ("deployments.apps", "shop", "deployment"), ("nodes", "", "node"),
    ("namespaces", "", "namespace"),
])  # fmt: skip
def test_a_plan_renders_selector_then_namespace_then_objects(
    resource, namespace, label, text, conditions, names, of_objects
):
    plan = custom(resource, text, bool(namespace))
    scope = f'namespace="{namespace}",' if namespace else ""
    assert plan.text(namespace, names) == (
        f"sum(rate(http_requests_total{{{conditions}{scope}{label}{of_objects}}}[2m])) by ({label})"
    )


def test_values_by_name_hold_selector_and_request():
    text = RULES.replace(QUERY, "'<<.LabelValuesByName>>'")
    source = MetricSource(rules(text).custom[0], "s")
    plan = custom("pods", "pod=mine,x in (a,b)", source=source)
    assert plan.text("shop", ("p", "q")) == "map[namespace:shop pod:p|q x:a|b]"


def test_plans_are_kept():
    plans = Plans()
    assert custom(plans=plans) is custom(plans=plans)
    assert custom(plans=plans) is not custom(text="x=1", plans=plans)
    kept = custom(plans=plans)
    plans.clear()
    assert custom(plans=plans) is not kept


def test_a_changed_rule_has_other_plans():
    other = MetricSource(rules(RULES.replace("[2m]", "[5m]")).custom[0], "http_requests_total")
    assert custom().key != custom(source=other).key


def test_what_cannot_be_asked_is_refused_before_it_is_asked():
    with pytest.raises(UnsupportedOperator):
        custom(text="x>1")
    with pytest.raises(NoLabel):
        custom("bogus.example.com")
    empty = rules(RULES.replace(QUERY, "'<<if false>>x<<end>>'"))
    with pytest.raises(RuleQueryError):
        custom(source=MetricSource(empty.custom[0], "s"))


@pytest.mark.parametrize(("query", "window_s"), [
    ("rate(s{<<.LabelMatchers>>}[2m])", 120.0),
    ("rate(s{<<.LabelMatchers>>}[2m]) / rate(t{<<.LabelMatchers>>}[2m])", 120.0),
    ("rate(s{<<.LabelMatchers>>}[2m]) / rate(t{<<.LabelMatchers>>}[5m])", None),
    ("s{<<.LabelMatchers>>}", None),
    ('s{<<.LabelMatchers>>,x="[5m]"}', None),
    ("max_over_time(s{<<.LabelMatchers>>}[1h:5m])", 3600.0),
])  # fmt: skip
def test_the_window_is_the_one_range_of_the_query(query, window_s):
    text = RULES.replace(QUERY, f"'{query}'")
    plans = Plans()
    plan = custom(plans=plans, source=MetricSource(rules(text).custom[0], "s"))
    assert plans.window_s(plan) == window_s


def test_external_rules_may_do_without_the_namespace():
    text = (
        "externalRules: [{seriesQuery: q, metricsQuery: 'q{<<.LabelMatchers>>}', resources: {%s}}]"
    )
    free = MetricSource(rules(text % "namespaced: false").external[0], "q")
    assert Plans().metric(free, "", True, Selector(), "").text("", ()) == "q{}"
    bound = MetricSource(rules(text % "template: <<.Resource>>").external[0], "q")
    assert Plans().metric(bound, "", True, Selector(), "").text("shop", ()) == 'q{namespace="shop"}'
