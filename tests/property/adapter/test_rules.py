"""Whatever is in a rules file: refused with a sentence, or it works. Nothing else."""

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from adapter.discovery import naming
from adapter.discovery.listing import ListingBuilder
from adapter.errors import ConfigInvalid
from adapter.rules import config, patterns
from adapter.rules.ruleset import compile_rules
from tests.unit.adapter.world import MAPPER, RULES, rules

names = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20))
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.sampled_from(
    ["rules", "externalRules", "resourceRules", "seriesQuery", "seriesFilters", "is", "isNot",
     "resources", "template", "overrides", "namespaced", "name", "matches", "as", "metricsQuery",
     "cpu", "memory", "window", "containerLabel", "resource", "group"]
)  # fmt: skip
files = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ConfigInvalid):
        config.parse(text)


@given(files)
def test_any_document_is_read_or_refused(document):
    with contextlib.suppress(ConfigInvalid):
        compile_rules(config.parse(json.dumps(document)), MAPPER)


@given(st.text(max_size=30), st.text(alphabet="ab_", max_size=10))
def test_expanding_never_fails_and_is_literal_without_a_dollar(template, series):
    pattern = patterns.compile("^(a*)(?P<rest>.*)$")
    match = pattern.search(series)
    assert match is not None
    made = naming.expand(template, match, pattern.groupindex)
    if "$" not in template:
        assert made == template


@given(st.text(max_size=15))
def test_a_pattern_is_compiled_or_refused_with_a_sentence(text):
    with contextlib.suppress(ValueError):  # RE2's own error is none
        patterns.compile(text)


def listed(rule, shapes):
    """Return the listing of the shapes, taken in their order."""
    builder = ListingBuilder(rule)
    for series, labels in shapes:
        builder.add(series, labels)
    return builder.build()


@given(
    st.dictionaries(
        st.text(alphabet="abct_", max_size=8),
        st.lists(st.frozensets(st.sampled_from(["pod", "namespace", "node", "x"])), max_size=3),
        max_size=12,
    ),
    st.randoms(),
)
def test_the_list_does_not_depend_on_the_order_of_series(series, random):
    rule = rules(RULES.replace('"^(.*)_total$", as: "${1}_per_second"', '"^(.)", as: "$1"')).custom[
        0
    ]
    shapes = [(name, labels) for name, found in series.items() for labels in found]
    first = listed(rule, shapes)
    random.shuffle(shapes)
    second = listed(rule, shapes)
    assert {k: s.series for k, s in first.exposed.items()} == {
        k: s.series for k, s in second.exposed.items()
    }
    assert first.lost.keys() == second.lost.keys()
