import pytest

from podscale.core import gotemplate
from podscale.core.gotemplate import (
    TemplateConstructRefused,
    TemplateError,
    TemplateExecutionError,
    TemplateSyntaxError,
)
from tests.conformance.template_deviations import is_refused
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
    if is_refused(template):
        with pytest.raises(TemplateConstructRefused):
            gotemplate.parse(template)
    elif query is None:
        with pytest.raises(TemplateSyntaxError) as refused:
            gotemplate.parse(template)
        reason, _, _action = str(refused.value).partition(': "<<')
        assert error.endswith(reason.partition(":")[2])
    elif error:
        with pytest.raises(TemplateExecutionError):
            gotemplate.parse(template).render(fields)
    else:
        assert gotemplate.parse(template).render(fields) == query


def test_lists_and_maps_print_as_go_prints_them():
    fields = {"M": {"b": "2", "a": "1|2"}, "L": ["x", "y z"]}
    assert gotemplate.parse("<<.M>> <<.L>>").render(fields) == "map[a:1|2 b:2] [x y z]"


OUTSIDE = [  # well-formed in Go: what is refused, where, and the words that say so
    ("<<block `r` .>>x<<end>>", "line 1, column 1", "rules cannot use block"),
    ("<<range .GroupBySlice>><<break>><<end>>", "line 1, column 24", "rules cannot use break"),
    ("<<range .GroupBySlice>><<continue>><<end>>", "line 1, column 24", "cannot use continue"),
    ("a\n  <<.Series>>\n<<print nil>>", "line 3, column 1", "rules cannot use print"),
    ("<<printf `%s` nil>>", "line 1, column 1", "rules cannot use nil"),
    ("<<define `q`>>x<<end>>", "line 1, column 1", "rules cannot use define"),
    ("a<<template `q` .>>", "line 1, column 2", "rules cannot use template"),
    ("<<with .Series>>a<<end>>", "line 1, column 1", "rules cannot use with"),
    ("<<if .Series>>a<<else with .GroupBy>>b<<end>>", "line 1, column 16", "cannot use with"),
    ("<<$x := .Series>>", "line 1, column 1", "rules cannot use $x where no range declares it"),
    ("<<range $x := .GroupBySlice>><<$x = 2>><<end>>", "line 1, column 30", "rules cannot use ="),
    ("<<.Series | html>>", "line 1, column 1", "rules cannot use html"),
    ("<<if not .Series>>a<<end>>", "line 1, column 1", "rules cannot use not"),
    ("<<(.LabelValuesByName).pod>>", "line 1, column 1", "rules cannot use )."),
    ("<<1.5>>", "line 1, column 1", "numbers that are not whole and decimal"),
    ("<<0x1f>>", "line 1, column 1", "numbers that are not whole and decimal"),
    ("<<'a'>>", "line 1, column 1", "rules cannot use 'a'"),
    (r'<<"\x41">>', "line 1, column 1", r'rules cannot use "\x41"'),
    ("<<printf `%5s` .Series>>", "line 1, column 1", "printf with another pattern"),
    ("<<printf `%d` 1>>", "line 1, column 1", "printf with another pattern"),
    ("<<printf .Series>>", "line 1, column 1", "printf with another pattern"),
    ("<<printf `%s`>>", "line 1, column 1", "printf with 1 arguments, not 2"),
    ("<<eq 1 1 1>>", "line 1, column 1", "eq with 3 arguments, not 2"),
    ("<<" + "(" * 101 + "1" + ")" * 101 + ">>", "line 1, column 1", "more than 100 levels"),
    ("<<1" + "|printf `%s`" * 101 + ">>", "line 1, column 1", "more than 100 levels"),
    ("<<if 1>>" * 101 + "<<end>>" * 101, "line 1, column 801", "more than 100 levels"),
]


@pytest.mark.parametrize(("text", "place", "reason"), OUTSIDE)
def test_what_rules_cannot_use_of_gos_templates_is_refused_by_name(text, place, reason):
    with pytest.raises(TemplateConstructRefused) as refused:
        gotemplate.parse(text)
    assert str(refused.value).startswith(f"{place}: TemplateConstructRefused: rules cannot use ")
    assert reason in str(refused.value)
    assert "write it with fields, index, if, range, printf, eq and ne" in str(refused.value)


@pytest.mark.parametrize(("text", "reason"), [
    ("<<printf `%s` 1>>", "printf in rules writes texts alone"),
    ("<<.>>", "rules cannot write all fields at once"),
    ("<<range 3>><<end>>", "rules can range over lists and maps"),
    ("<<index .Series 0>>", "rules index lists by numbers within, and maps by texts"),
    ("<<eq .GroupBySlice .GroupBySlice>>", "rules can compare texts with texts"),
])  # fmt: skip
def test_values_that_rules_cannot_use_so_fail_the_request_by_name(text, reason):
    with pytest.raises(TemplateExecutionError) as refused:
        gotemplate.parse(text).render(FIELDS)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "<<range $.GroupBySlice>>" * 14 + "x" + "<<end>>" * 14,
        "<<" + "(" * 5000 + "1" + ")" * 5000 + ">>",
        "<<if 1>>" * 2000 + "<<end>>" * 2000,
        "<<printf `" + "%s" * 400 + "`" + " .LabelMatchers" * 400 + ">>",
    ],
)
def test_a_template_cannot_run_away(text):
    long = {**FIELDS, "LabelMatchers": "x" * 200, "GroupBySlice": ["a", "b"]}
    with pytest.raises(TemplateError):
        gotemplate.parse(text).render(long)


def test_a_syntax_error_names_the_line_and_the_column():
    with pytest.raises(TemplateSyntaxError) as refused:
        gotemplate.parse("a\nb <<end>>")
    assert str(refused.value) == 'line 2, column 3: unexpected {{end}}: "<<end>>"'
