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
    fields = {"M": {"b": "2", "a": "1|2"}, "L": ["x", "y z"], "N": {"deep": {"k": [1, 2.5]}}}
    assert gotemplate.parse("<<.M>> <<.L>> <<.N>>").render(fields) == (
        "map[a:1|2 b:2] [x y z] map[deep:map[k:[1 2.5]]]"
    )


def test_the_type_of_the_fields_is_shown_by_its_name():
    assert gotemplate.parse("<<printf `%T` .>>").render({"A": "a"}, "pkg.args") == "pkg.args"


ORACLE = [
    "<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>,<<end>>",
    "<<range .GroupBySlice>><<.>>;<<else>>none<<end>>",
    "<<range $i, $g := .GroupBySlice>><<if $i>>,<<end>><<$g>><<end>>",
    "<<with .LabelValuesByName.nope>>yes<<else>>no<<end>>",
    "<<if eq .Series `x` `http_requests_total`>>a<<else if true>>b<<else>>c<<end>>",
    "<<$x := 1>><<if true>><<$x = 2>><<$y := 3>><<end>><<$x>>",
    '<<index .LabelValuesByName "namespace">>-base',
    "a  <<- /* gone */ ->>  b",
    "<<.Series -}} >>",
    '<<define "q">>[<<.>>]<<end>><<template "q" .Series>><<block "r" .GroupBy>>(<<.>>)<<end>>',
    "<<range .GroupBySlice>><<if eq . `container`>><<break>><<end>><<.>><<end>>",
    "<<slice .Series 5 13 | printf `%-10s|` | html>>",
    "<<.LabelValuesByName.nope>> <<index .LabelValuesByName `nope`>>|<<len .LabelValuesByName>>",
    "<<template `metrics-query` .>>",
    "<<.Series.Nope>>",
    "<<eq 1 1.0>>",
    "<<lt `a` `b`>><<le 1 1>><<gt 2.5 1.5>><<ge `a` `b`>><<ne true false>>",
    "<<print nil>> <<print 1 2 `a` `b` 3 4>>|<<println 1 `a`>>",
    "<<range 3>><<.>><<end>>",
    "<<.>>",
]


def test_known_templates_do_what_go_does():
    for text, (kind, want) in zip(ORACLE, answers(ORACLE), strict=True):
        got = outcome(text)
        assert got[0] == kind, text
        if kind == "text":
            assert got[1] == want, text


@pytest.mark.parametrize(
    "text",
    [
        '<<define "a">><<template "a">><<end>><<template "a">>',
        '<<define "a">><<template "a">><<template "a">><<end>><<template "a">>',
        "<<range 1000000000>>x<<end>>",
        "<<printf `%999999d` 1>>" * 10,
        "<<" + "(" * 5000 + "1" + ")" * 5000 + ">>",
        "<<if 1>>" * 2000 + "<<end>>" * 2000,
    ],
)
def test_a_template_cannot_run_away(text):
    with pytest.raises(TemplateError):
        gotemplate.parse(text).render({})


def test_a_syntax_error_names_the_template_and_the_line():
    with pytest.raises(TemplateSyntaxError) as refused:
        gotemplate.parse("a\nb <<end>>", name="metrics-query")
    assert str(refused.value) == "template: metrics-query:2: unexpected {{end}}"
    assert refused.value.line == 2


def test_other_delimiters_leave_the_usual_ones_alone():
    assert gotemplate.parse("{{.a}}<<.a>>", left="{{", right="}}").render({"a": "1"}) == "1<<.a>>"
