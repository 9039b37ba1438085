"""The prover's conditions, its printer, its skeleton."""

import pytest

from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover.printer import printed
from podscale.feed.prover.proof import prove, skeleton
from podscale.feed.prover.tree import NotPromql, parse
from tests.unit.feed.prometheus import pods_plan
from tests.unit.feed.verdicts import VERDICTS, outcome_of


@pytest.mark.parametrize(
    ("api", "template", "outcome"), [pytest.param(*rest, id=name) for name, *rest in VERDICTS]
)
def test_verdict(api, template, outcome):
    verdict = prove(pods_plan(template=template, api=api))
    assert outcome_of(verdict) == outcome, verdict


@pytest.mark.parametrize(
    "text",
    [
        "-(1)",
        "(-1) ^ 2",
        "-1 ^ 2",
        "-a ^ b ^ c",
        "a - b - c",
        "x offset -5m @ end()",
        "x{} @ 12.5 offset 1w",
        "(-x)[5m:1m] offset 3s",
        "rate(x[1h30m])[1d:]",
        "a == bool on(x) group_left(z, y) b",
        "a * ignoring(x) group_right b",
        "a / ignoring() group_left b",
        'a{b="x\\n\\"é\\u00a0\\\\",c!~"d|e"}',
        "a{b=`raw\\n`}",
        '{"a.b",x="1","c d"="2"}',
        "sum without() (x)",
        'sum by ("a b", c) (x)',
        "NaN + Inf - 1e-9 + 0x1F + -Inf",
        "topk(3, -a)",
        "a or b unless on(x) c and ignoring(y) d",
        'count_values("v", a)',
        '{__name__=~"a.*"}',
        "clamp(a, -1, 1)",
        "a atan2 b % c",
        "quantile by (x) (0.9, rate(y[5m]))",
        "time() - 1.7e308 * 3",
        "sum(sum) by (by)",
    ],
)
def test_printed_text_reads_back_as_the_same_tree(text):
    tree = parse(text)
    assert parse(printed(tree)) == tree
    assert printed(parse(printed(tree))) == printed(tree)


@pytest.mark.parametrize("text", ["", "a{", "a + fill(0) b", 'a{b="c" or d="e"}', "a @ -5"])
def test_what_our_tree_cannot_say_is_refused(text):
    with pytest.raises(NotPromql):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a+" * 5000 + "a", id="chain"),
        pytest.param("a or " * 5000 + "a", id="chain-of-words"),
        pytest.param("(" * 50_000 + "a" + ")" * 50_000, id="parentheses"),
        pytest.param("-" * 50_000 + "a", id="signs"),
        pytest.param("a[99999999999999999999:1m]", id="range"),
        pytest.param("rate(a[1000000000000000000])", id="number-as-range"),
        pytest.param("a @ 99999999999999", id="time"),
        pytest.param("a @ NaN", id="time-nan"),
    ],
)
def test_a_text_that_breaks_the_parser_is_refused_and_the_process_lives(text):
    with pytest.raises(NotPromql):
        parse(text)


def test_strings_do_not_count_as_operators():
    assert parse('a{b=~"' + "x|(y)+" * 600 + '"}')


@pytest.mark.parametrize(
    ("namespace", "names", "is_covered"),
    [
        ("n1", ("web-0",), True),
        ("n1", ("web-0", "Web_1.example:8080"), True),
        ("n1", ("a+b",), False),
        ("n1", ("web-0", "a|b"), False),
        ("n1", ("*",), False),
        ("n1", ('q"uote',), False),
        ("n1", ("",), False),
        ("n1", (), False),
        ("n1", ("line\n",), False),
        ("N1", ("web-0",), False),
        ("n1|n2", ("web-0",), False),
        (".*", ("web-0",), False),
        ("-n1", ("web-0",), False),
        ("n1\n", ("web-0",), False),
        ("", ("web-0",), False),
    ],
)
def test_hostile_values_are_not_covered_by_the_proof(namespace, names, is_covered):
    verdict = prove(pods_plan())
    assert verdict.skeleton.covers(namespace, names) == is_covered


def test_a_request_whose_text_differs_from_the_skeleton_is_not_covered():
    def render(matchers, values):
        return f"sum by (pod) ({'b' if values['namespace'] == 'prod' else 'a'}{{{matchers}}})"

    plan = QueryPlan("custom", "r", "a", KeyLabels("namespace", "pod"), render)
    filled = skeleton(plan)
    assert filled.covers("dev", ("p0",))
    assert not filled.covers("prod", ("p0",))


def test_a_value_cut_by_the_template_is_static_or_not_covered():
    plan = pods_plan()

    def render(matchers, values):
        return f'sum by (pod) (a{{{matchers},tier="{values["namespace"][:2]}"}})'

    cut = QueryPlan("custom", "r", "a", plan.labels, render)
    assert not skeleton(cut).covers("n1", ("p0",))


def test_one_label_in_two_roles_is_not_widened():
    labels = KeyLabels("pod", "pod")
    plan = QueryPlan(
        "custom", "r", "a", labels, lambda matchers, _: f"sum by (pod) (a{{{matchers}}})"
    )
    assert outcome_of(prove(plan)) == "per-request"


@pytest.mark.parametrize(
    ("template", "stamp"),
    [
        (
            "sum by (pod) (rate(a{<M>}[5m]))",
            'max by (namespace,pod) (timestamp(a{namespace=~"n1|n2"}))',
        ),
        (
            'max_over_time(sum by (pod) (rate(a{x="y",<M>}[5m]))[5m:30s])',
            'max by (namespace,pod) (timestamp(a{x="y",namespace=~"n1|n2"}))',
        ),
        (
            "a{<M>} * on() group_left cap",
            'max by (namespace,pod) (timestamp(a{namespace=~"n1|n2"}))',
        ),
        ("a{<M>} offset 5m", None),
        ("a{<M>} @ end()", None),
        ("max_over_time(a{<M>}[5m:1m] offset 1h)", None),
        (
            "last_over_time(a{<M>}[5m])",
            'max by (namespace,pod) (timestamp(a{namespace=~"n1|n2"}))',
        ),
        (
            "rate(a{<M>}[1h])",
            'max by (namespace,pod) (timestamp(a{namespace=~"n1|n2"}))',
        ),
        (
            "a{<M>} * on() group_left last_over_time(cap[1h])",
            'max by (namespace,pod) (timestamp(a{namespace=~"n1|n2"}))',
        ),
        ("last_over_time(a{<M>}[301s])", None),  # how old a sample may be is written there
        ("sum by (pod) (max_over_time(a{<M>}[1h:1m]))", None),
        ("max_over_time(a{<M>}[5m:1m] @ 100)", None),
        ("a{<M>} / on(namespace,pod) b{<M>}", None),
        ('sum by (pod) (a{namespace="<namespace>"})', None),  # pods of the answer are not its keys
    ],
)
def test_the_age_is_asked_for_where_one_bound_selector_tells_it(template, stamp):
    verdict = prove(pods_plan(template=template))
    assert outcome_of(verdict) == "widen"
    assert verdict.stamp_text(("n1", "n2")) == stamp


def test_named_and_wide_texts_differ_by_the_names_only():
    verdict = prove(pods_plan(template="sum by (pod) (rate(a{<M>}[5m]))"))
    head = 'sum by (namespace,pod) (rate(a{namespace=~"n1|n2"'
    assert verdict.text(("n1", "n2")) == head + "}[300000ms]))"
    assert verdict.text(("n1", "n2"), ("p", "q")) == head + ',pod=~"p|q"}[300000ms]))'
    assert verdict.text(("n1",), ("p",)) == (
        'sum by (namespace,pod) (rate(a{namespace="n1",pod="p"}[300000ms]))'
    )


def test_selectors_longer_than_a_shared_query_are_not_even_parsed():
    long = 'x=~"' + "y" * 5000 + '"'
    verdict = prove(pods_plan(template=f"sum by (pod) (a{{{long},<M>}})", matchers=(long,)))
    assert (outcome_of(verdict), "longer" in verdict.reason) == ("per-request", True)


@pytest.mark.parametrize(("text", "older"), [
    ("x * 1_000", "x * 1000"),
    ("x * 1_000_000.5e1_0", "x * 1000000.5e10"),
    ("x + 0x_FF_0", "x + 0xFF0"),
    ("x @ 1_000", "x @ 1000"),
    ("rate(x[1_000])", "rate(x[1000s])"),
    ("rate(x[5m*2])", "rate(x[10m])"),
    ("rate(x[(5m + 30) / 2])", "rate(x[165s])"),
    ("rate(x[2^3*1m] offset (1h/2))", "rate(x[8m] offset 30m)"),
    ("x offset -((2 ^ 3) * 1m)", "x offset -8m"),
    ("x OFFSET(5m%2m)", "x offset 1m"),
    ("rate(x[1m])[30m*2:1_0*2]", "rate(x[1m])[1h:20s]"),
    ("rate(x[max_of(step(), 5m)])", "rate(x[5m])"),
    ('a_1_0{b_1_0="1_0[5m*2]",c="`"} # 1_0', 'a_1_0{b_1_0="1_0[5m*2]",c="`"}'),
    ("job:x_1_000:rate5m", "job:x_1_000:rate5m"),
    ("sum by (offset) (x)", "sum by (offset) (x)"),
])  # fmt: skip
def test_numbers_with_separators_and_calculated_durations_are_read(text, older):
    assert parse(text) == parse(older)
    assert printed(parse(text)) == printed(parse(older))


@pytest.mark.parametrize("text", [
    "1__0", "1_", "_1 1", "x[10_0m]", "x[5m-5m]", "x[5m/0]", "x[5m+y]", "x[(-8)^0.5]", "x[2^9999]",
    "x[5m*]", "x offset (5m", "x[0x]", "1_.5",
])  # fmt: skip
def test_what_prometheus_refuses_of_them_is_refused(text):
    with pytest.raises(NotPromql):
        parse(text)


def test_a_calculated_window_is_widened_as_its_value():
    plan = pods_plan(template="sum by (pod) (rate(m{<M>}[5m*2])) * 1_000")
    verdict = prove(plan)
    assert outcome_of(verdict) == outcome_of(prove(pods_plan()))
    assert "[600000ms]" in verdict.text(("shop",))
