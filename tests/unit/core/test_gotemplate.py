import pytest

from podscale.core import gotemplate
from podscale.core.gotemplate import TemplateError, TemplateExecutionError, TemplateSyntaxError
from tests.unit.core.oracle import answers, outcome
from tests.unit.core.rows import rows

FIELDS = {
    "Series": "s",
    "LabelMatchers": 'namespace="ns",pod="a"',
    "LabelValuesByName": {"namespace": "ns", "pod": "a"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}

# Templates whose text follows from the fields alone; what the fields hold is the adapter's.
B5 = [
    row
    for row in rows("B5")
    if row[2:7] == ["pods", "ns", None, "", ["a"]] and "empty query" not in row[8]
]


@pytest.mark.parametrize("row", B5, ids=lambda row: repr(row[0]))
def test_templates_render_as_recorded(row):
    template, series, *_, query, error = row
    fields = {**FIELDS, "Series": series}
    if query is None:
        with pytest.raises(TemplateSyntaxError) as refused:
            gotemplate.parse(template, name="metrics-query")
        assert error.endswith(f": {refused.value}")
    elif error:
        with pytest.raises(TemplateExecutionError):
            gotemplate.parse(template).render(fields)
    else:
        assert gotemplate.parse(template).render(fields) == query


def test_lists_and_maps_print_as_go_prints_them():
    fields = {"M": {"b": "2", "a": "1|2"}, "L": ["x", "y z"]}
    assert gotemplate.parse("<<.M>> <<.L>>").render(fields) == "map[a:1|2 b:2] [x y z]"


OUTSIDE = [  # well-formed in Go: what is refused, and the words that say so
    ("<<block `r` .>>x<<end>>", 'rules cannot use "block"'),
    ("<<range .GroupBySlice>><<break>><<end>>", 'rules cannot use "break"'),
    ("<<range .GroupBySlice>><<continue>><<end>>", 'rules cannot use "continue"'),
    ("<<print nil>>", '"nil" is no value here'),
    ("<<println 1>>", 'rules cannot use "println"'),
    ("<<$x := 1>><<$x = 2>>", "rules can declare a variable once"),
    ("<<with .Series>>a<<else with .GroupBy>>b<<end>>", "unexpected"),
    ("<<(.LabelValuesByName).pod>>", "rules cannot take a field"),
    ("<<1.5>>", "whole decimal numbers"),
    ("<<0x1f>>", "whole decimal numbers"),
    ("<<'a'>>", "whole decimal numbers"),
    (r'<<"\x41">>', "rules can escape"),
    ("<<printf `%5s` .Series>>", "printf in rules knows %s, %q, %v, %d and %%"),
    ("<<printf `%T` .>>", "printf in rules knows"),
    ("<<printf .Series>>", "as a constant text"),
    ("<<printf `%s`>>", "wrong number of args for printf: want 2 got 1"),
    ("<<printf `%d` .Series>>", "printf in rules cannot write text as %d"),
    ("<<.>>", "rules cannot write all fields at once"),
    ("<<range 3>><<end>>", "rules can range over lists and maps"),
    ("<<index .Series 0>>", "rules can index lists and maps"),
]


@pytest.mark.parametrize(("text", "reason"), OUTSIDE)
def test_what_rules_cannot_use_of_gos_templates_is_refused_by_name(text, reason):
    with pytest.raises(TemplateError) as refused:
        gotemplate.parse(text, name="metrics-query").render(FIELDS)
    assert reason in str(refused.value)


ORACLE = [
    "<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>,<<end>>",
    "<<range .GroupBySlice>><<.>>;<<else>>none<<end>>",
    "<<range $i, $g := .GroupBySlice>><<if $i>>,<<end>><<$g>><<end>>",
    "<<with .LabelValuesByName.nope>>yes<<else>>no<<end>>",
    "<<if eq .Series `x` `http_requests_total`>>a<<else if true>>b<<else>>c<<end>>",
    '<<index .LabelValuesByName "namespace">>-base',
    "a  <<- /* gone */ ->>  b",
    "<<.Series -}} >>",
    '<<define "q">>[<<.>>]<<end>><<template "q" .Series>><<template "q">>',
    "<<slice .Series 5 13 | printf `%s|` | html>>",
    "<<.LabelValuesByName.nope>> <<index .LabelValuesByName `nope`>>|<<len .LabelValuesByName>>",
    "<<template `metrics-query` .>>",
    "<<.Series.Nope>>",
    "<<lt `a` `b`>><<le 1 1>><<gt 2 1>><<ge `a` `b`>><<ne true false>>",
    "<<print 1 2 `a` `b` 3 4>> <<print .LabelValuesByName.nope>>",
    "<<$x := 1>><<if true>><<$x := 2>><<$x>><<end>><<$x>>",
    "<<range $k, $v := .GroupBySlice>><<end>><<with $x := .GroupBy>><<$x>><<.>><<end>>",
]


def test_known_templates_do_what_go_does():
    for text, (kind, want) in zip(ORACLE, answers(ORACLE), strict=True):
        got = outcome(text)
        assert (got[0] == "text") is (kind == "text"), text
        if kind == "text":
            assert got[1] == want, text


@pytest.mark.parametrize(
    "text",
    [
        '<<define "a">><<template "a">><<end>><<template "a">>',
        '<<define "a">><<template "a">><<template "a">><<end>><<template "a">>',
        "<<range .GroupBySlice>>" * 20 + "x" + "<<end>>" * 20,
        "<<" + "(" * 5000 + "1" + ")" * 5000 + ">>",
        "<<if 1>>" * 2000 + "<<end>>" * 2000,
    ],
)
def test_a_template_cannot_run_away(text):
    with pytest.raises(TemplateError):
        gotemplate.parse(text).render(FIELDS)


def test_a_syntax_error_names_the_template_and_the_line():
    with pytest.raises(TemplateSyntaxError) as refused:
        gotemplate.parse("a\nb <<end>>", name="metrics-query")
    assert str(refused.value) == "template: metrics-query:2: unexpected {{end}}"
    assert refused.value.line == 2


def test_other_delimiters_leave_the_usual_ones_alone():
    assert gotemplate.parse("{{.a}}<<.a>>", left="{{", right="}}").render({"a": "1"}) == "1<<.a>>"
