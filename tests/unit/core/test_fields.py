import pytest

from podscale.core.selectors import fields
from podscale.core.selectors.fields import FieldRequirement, FieldSelectorError


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", ()),
        ("a=b", (FieldRequirement("a", "b"),)),
        ("a==b,c.d!=e", (FieldRequirement("a", "b"), FieldRequirement("c.d", "e", False))),
        ("a=", (FieldRequirement("a", ""),)),
        (r"a=x\,y\=z\\", (FieldRequirement("a", "x,y=z\\"),)),
        (",a=b,", (FieldRequirement("a", "b"),)),
        ("b=1,a=2", (FieldRequirement("a", "2"), FieldRequirement("b", "1"))),
        (r"a\=b", (FieldRequirement("a\\", "b"),)),
    ],
)
def test_field_selectors(text, requirements):
    assert fields.parse(text) == requirements


# Texts of k8s.io/apimachinery 0.33, asked by a program.
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b,a", "invalid selector: 'b,a'; can't understand 'a'"),
        ("a>b", "invalid selector: 'a>b'; can't understand 'a>b'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=b\\=", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_what_is_no_field_selector_is_refused(text, message):
    with pytest.raises(FieldSelectorError) as caught:
        fields.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "expected"), [("a=1", "1"), ("a!=1", None), ("b=1", None), ("b=2,a=2,a=1", "1")]
)
def test_an_exact_match_is_demanded_by_equality_only(text, expected):
    assert fields.exact_match(fields.parse(text), "a") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a=1", True), ("a!=1", False), ("b=", True), ("b!=", False), ("a=1,c!=2", True)],
)
def test_an_absent_field_is_empty(text, expected):
    assert fields.matches(fields.parse(text), {"a": "1"}) is expected
