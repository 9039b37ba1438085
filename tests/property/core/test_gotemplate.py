import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.core import gotemplate
from podscale.core.gotemplate import TemplateError
from tests.property.core.templates import printf, template
from tests.unit.core.oracle import FIELDS, answers, is_outside, outcome

ORACLE = [
    "<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>,<<end>>",
    "<<range .GroupBySlice>><<.>>;<<else>>none<<end>>",
    "<<range $i, $g := .GroupBySlice>><<if $i>>,<<end>><<$g>><<$.Series>><<end>>",
    "<<range .LabelValuesByName.nope>>yes<<else>>no<<end>>",
    "<<if eq .Series `http_requests_total`>>a<<else if true>>b<<else>>c<<end>>",
    '<<index .LabelValuesByName "namespace">>-base',
    "a  <<- /* gone */ ->>  b",
    "<<.Series -}} >>",
    "<<.Series | printf `%s|` | printf `%q`>>",
    "<<.LabelValuesByName.nope>> <<index .LabelValuesByName `nope`>>|<<.LabelValuesByName>>",
    "<<.Series.Nope>>",
    "<<index .GroupBySlice 5>>",
    "<<ne true false>><<eq `a` `b`>><<ne 1 1>>",
    "<<range $k, $v := .GroupBySlice>><<end>><<$k>>",
    "<<range $x := .GroupBySlice>><<range $x, $y := $.LabelValuesByName>><<$x>><<end>><<end>>",
    "</* a */ >><<true | .Series>>",
]
COUNT = 1500 if os.environ.get("PODSCALE_SHORT") else 6000


@pytest.mark.needs("go")
def test_random_templates_do_what_go_does():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}, {COUNT} templates and {COUNT} formats")
    source = random.Random(seed)
    texts = [template(source) for _ in range(COUNT)] + [printf(source) for _ in range(COUNT)]
    agreed, wrong = 0, []
    for text, want in zip(texts, answers(texts), strict=True):
        got = outcome(text)
        if got[0] == want[0] == "text" and got[1] == want[1]:
            agreed += 1
        elif got[0] == "text" or (want[0] == "text" and not is_outside(got[1])):
            wrong.append((text, want, got))
    assert wrong == [], f"seed {seed}"
    assert agreed > COUNT // 4


@pytest.mark.needs("go")
def test_known_templates_do_what_go_does():
    for text, (kind, want) in zip(ORACLE, answers(ORACLE), strict=True):
        got = outcome(text)
        assert (got[0] == "text") is (kind == "text"), text
        if kind == "text":
            assert got[1] == want, text


@given(st.text(alphabet="<>-{}()|$.\"`' \n:=,ifrangewthdlcok0x1/*", max_size=60))
def test_any_text_is_a_template_or_a_template_error(text):
    try:
        gotemplate.parse(text).render(FIELDS)
    except TemplateError:
        return


@given(st.text(max_size=80).filter(lambda text: "<<" not in text))
def test_text_without_actions_is_itself(text):
    assert gotemplate.parse(text).render({}) == text
