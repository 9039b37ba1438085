"""What msgspec, codecs, OpenSSL and the system say, in words."""

import msgspec
import pytest

from podscale.core.plainwords import plain_words


class Example(msgspec.Struct):
    one: bool | None = None
    two: dict[str, list[int]] = {}


@pytest.mark.parametrize(("given", "said"), [
    ({"one": "x"}, "one: expected a boolean, got a string"),
    ({"two": {"a": ["b"]}}, "two[...][0]: expected an integer, got a string"),
    (7, "expected a mapping, got an integer"),
])  # fmt: skip
def test_a_wrong_type_is_told_with_its_place(given, said):
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, Example)
    assert plain_words(str(refused.value)) == said


def test_codecs_and_numbers_of_errors_are_left_out():
    with pytest.raises(UnicodeDecodeError) as refused:
        b"\xff".decode()
    assert plain_words(f"a.yaml: {refused.value}") == "a.yaml: not a text in UTF-8"
    with pytest.raises(UnicodeEncodeError) as refused_too:
        "\udcff".encode()
    assert plain_words(str(refused_too.value)) == "not a text in UTF-8"
    assert plain_words(str(FileNotFoundError(2, "No such file", "a"))) == "No such file: 'a'"
    text = "[X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found (_ssl.c:4154)"
    assert plain_words(text) == "no certificate or crl found"
    assert plain_words("rules[0]: as it was") == "rules[0]: as it was"
