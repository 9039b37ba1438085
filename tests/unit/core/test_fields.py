import pytest

from podscale.core import fields
from podscale.core.fields import FieldRequirement, FieldSelectorError


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", ()),
        ("a=b", (FieldRequirement("a", "b"),)),
        ("a==b,c.d!=e", (FieldRequirement("a", "b"), FieldRequirement("c.d", "e", False))),
        ("a=", (FieldRequirement("a", ""),)),
        (r"a=x\,y\=z\\", (FieldRequirement("a", "x,y=z\\"),)),
        (",a=b,", (FieldRequirement("a", "b"),)),
    ],
)
def test_field_selectors(text, requirements):
    assert fields.parse(text) == requirements


@pytest.mark.parametrize("text", ["a", "a>b", r"a=\x", "a=b=c"])
def test_what_is_no_field_selector_is_refused(text):
    with pytest.raises(FieldSelectorError):
        fields.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a=1", True), ("a!=1", False), ("b=", True), ("b!=", False), ("a=1,c!=2", True)],
)
def test_an_absent_field_is_empty(text, expected):
    assert fields.matches(fields.parse(text), {"a": "1"}) is expected
