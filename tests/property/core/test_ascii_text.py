import re

from hypothesis import given
from hypothesis import strategies as st

from podscale.core.ascii_text import ascii_lower, listed_words, whole_number


@given(st.text() | st.text(alphabet="aZk\u212a\u017f\u0130"))
def test_only_the_capitals_of_ascii_are_folded(text):
    assert ascii_lower(text) == re.sub("[A-Z]", lambda found: found[0].lower(), text)
    assert ascii_lower(text).isascii() is text.isascii()


@given(st.text(alphabet="0123456789\u0661\uff11_ +-.", max_size=25) | st.integers().map(str))
def test_a_whole_number_is_digits_of_ascii_and_fits_64_bits(text):
    found = whole_number(text)
    assert (found is not None) is (re.fullmatch("[0-9]{1,18}", text) is not None)
    assert found is None or str(found) == (text.lstrip("0") or "0")


@given(st.lists(st.text(alphabet="aB-\u212a", max_size=4)))
def test_words_of_a_list_are_whole_words(words):
    assert listed_words(" ,\t".join(words)) == [ascii_lower(word) for word in words or [""]]
