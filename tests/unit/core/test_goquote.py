import pytest

from podscale.core.goquote import quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("a b", '"a b"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x01\x1f\x7f", r'"\x00\x01\x1f\x7f"'),
        ("\x80\xa0\xad", r'"\u0080\u00a0\u00ad"'),
        ("日本é", '"日本é"'),
        ("\u200b\ufeff\ue000", r'"\u200b\ufeff\ue000"'),
        ("\U0001f600", '"\U0001f600"'),
        ("\U000e0001", r'"\U000e0001"'),
        (b"\xff".decode(errors="surrogateescape"), r'"\xff"'),
        ("'`", '"\'`"'),
    ],
)
def test_texts_are_quoted_as_go_quotes_them(text, quoted):
    assert quote(text) == quoted
