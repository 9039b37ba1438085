from hypothesis import given
from hypothesis import strategies as st

from podscale.core.selectors import selector
from podscale.core.selectors.selector import Requirement, Selector, SelectorError

NAMES = st.from_regex(r"\A[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?\Z")
VALUES = st.one_of(st.just(""), NAMES, st.integers(-99, 99).map(lambda n: str(abs(n))))
SETS = st.sets(VALUES, min_size=1, max_size=3).map(lambda found: tuple(sorted(found)))
REQUIREMENTS = st.one_of(
    st.builds(Requirement, NAMES, st.sampled_from(["exists", "!"])),
    st.builds(Requirement, NAMES, st.sampled_from(["=", "==", "!="]), st.tuples(VALUES)),
    st.builds(Requirement, NAMES, st.sampled_from(["in", "notin"]), SETS),
    st.builds(
        Requirement,
        NAMES,
        st.sampled_from(["gt", "lt"]),
        st.tuples(st.integers(0, 99).map(str)),
    ),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(
    lambda found: Selector(tuple(sorted(found, key=lambda r: r.key)))
)
LABELS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(SELECTORS)
def test_canonical_text_reads_back_as_the_same_selector(written):
    assert selector.parse(str(written)) == written


@given(SELECTORS, LABELS)
def test_the_object_form_matches_what_the_text_matches(written, labels):
    if any(r.operator in ("gt", "lt") for r in written.requirements):
        return
    keys = [r.key for r in written.requirements if r.operator in ("=", "==")]
    if len(keys) != len(set(keys)):
        return  # the object form keeps one value per key, as upstream's
    echoed = selector.from_wire(selector.to_wire(written) or {})
    assert echoed.matches(labels) == written.matches(labels)


@given(SELECTORS, LABELS)
def test_a_selector_is_the_conjunction_of_its_requirements(written, labels):
    alone = [Selector((requirement,)).matches(labels) for requirement in written.requirements]
    assert written.matches(labels) == all(alone)


@given(st.text(alphabet="ab/.-=!<>(), \0\tinot1", max_size=30))
def test_any_text_is_a_selector_or_a_selector_error(text):
    try:
        parsed = selector.parse(text)
    except SelectorError:
        return
    assert selector.parse(str(parsed)) == parsed
