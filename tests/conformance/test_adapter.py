"""Every row of cases A, B and C of prometheus-adapter, against our adapter.

Parts A and B call the functions that the server is made of; part C runs the server
(``adapter_served``). Deliberate differences are those of ``deviations.yaml``, stated as
rules and never row by row. A9 needs a cluster and is in that ring.
"""

import json
import time

import pytest

from adapter.discovery import mapping
from adapter.discovery.labels import LabelProblem
from adapter.discovery.naming import Namer
from adapter.errors import ConfigInvalid, RuleQueryError
from adapter.queries import readings
from adapter.queries.promql import QueryTemplate
from adapter.rules import config, config_gen
from adapter.rules.ruleset import NameFilter
from podscale.core import gotemplate, quantity
from podscale.core.selectors import selector
from podscale.core.times import duration
from podscale.feed.decoding import wire as feed_wire
from podscale.feed.http import client
from podscale.feed.http import series as feed_series
from podscale.kube.client.errors import NoMatch
from tests.conformance import adapter_lists as lists
from tests.conformance import adapter_pure as pure
from tests.conformance.adapter_behaviour import *  # noqa: F403 - tests named after their rows
from tests.conformance.adapter_cases import cases, part_b_mapper, rows
from tests.conformance.adapter_deviations import echo_of
from tests.conformance.adapter_served import demand, in_conflict, sampled, served
from tests.conformance.template_deviations import is_refused

__all__ = ["in_conflict", "sampled", "served"]

MAPPER = part_b_mapper()


def parsed_selector(text):
    return selector.parse(text) if text else selector.Selector()


@pytest.mark.parametrize(("rate", "prefix"), [("1m", ""), ("5m", "kube_"), ("2m", "k8s_x_")])
@cases("A0")
def test_default_rules(row, rate, prefix):
    text = json.dumps({k: v for k, v in row.items() if k != "n"})
    expected = json.loads(text.replace("RATE", rate).replace("PREFIX", prefix))
    made = config_gen.dump(config_gen.default_config(rate, prefix), rate)
    assert made["rules"][row["n"] - 1] == expected


@pytest.mark.parametrize(("rate", "prefix"), [("1m", ""), ("5m", "kube_")])
@cases("A0-2")
def test_default_resource_rules(row, rate, prefix):
    expected = json.loads(json.dumps(row).replace("RATE", rate).replace("PREFIX", prefix))
    made = config_gen.dump(config_gen.default_config(rate, prefix), rate)
    assert made["resourceRules"] == expected


@cases("A1-2")
async def test_default_rules_ask_for_series(row):
    relister, lister = lists.first_case()
    before = time.time()
    await relister.relist()
    query, _series = row
    (start_s,) = [start_s for asked, start_s in lister.asked if asked == query]
    assert start_s >= before - 1.1 * 2.0


@cases("A1", "A1-3")
async def test_default_rules_list(row):
    relister, _ = lists.first_case()
    assert lists.listed(relister) == set()  # before the first relist
    await relister.relist()
    found = lists.listed(relister)
    if isinstance(row[0], str):
        assert tuple(row) in found
    else:  # A1 itself: the resources, which are all that the list speaks of
        assert found == {tuple(entry) for entry in rows("A1-3")}


@cases("A2", "A2-3")
async def test_prefixed_rules_list(row):
    relister, _ = lists.second_case()
    await relister.relist()
    found = lists.listed(relister)
    if len(row) == 3:
        assert tuple(row) in found
    else:  # series, of which the list as a whole is made
        assert found == {tuple(entry) for entry in rows("A2-3")}


@cases("A2-2")
async def test_prefixed_rules_query(row):
    relister, mapper = lists.second_case()
    await relister.relist()
    assert lists.query(relister, mapper, row) == row[-1]


@cases("A3")
def test_custom_query_template(row):
    _, template, _, series, key, namespace, extra, metric_selector, names, expected = row
    query = QueryTemplate(template, pure.NamesAsLabels())
    wanted = parsed_selector(metric_selector)
    assert expected == pure.custom(query, series, key, namespace, names, wanted, extra)


@cases("A4")
def test_external_query_template(row):
    _, template, namespaced, series, namespace, group_by, slice_, metric_selector, expected = row
    query = QueryTemplate(template, pure.NamesAsLabels(), is_namespaced=namespaced)
    wanted = parsed_selector(metric_selector)
    assert expected == pure.external(query, series, namespace, wanted, group_by, slice_)


@cases("A5")
def test_series_filter(row):
    _, entry, expected = row
    (written,) = pure.filters_of([entry])
    if isinstance(expected, str):
        assert expected.endswith("error")
        with pytest.raises(ValueError):
            NameFilter(written)
        return
    assert {name: NameFilter(written).keeps(name) for name in expected} == expected


@cases("A7")
async def test_usage(row):
    found, unexpected = await lists.measured(row)
    assert not unexpected
    assert found == lists.expected(row)


@cases("B1")
def test_metric_naming(row):
    matches, as_, series, name, error = row[:5]
    if pure.is_constructors(error):
        assert pure.refused(pure.file([pure.rule(matches, as_)]), MAPPER)
        return
    rule = pure.compiled([pure.rule(matches, as_)], MAPPER).custom[0]
    assert rule.keeps(series) is row[5]
    assert Namer(matches, as_).name(series) == (None if error else name)


@cases("B2")
def test_series_filters(row):
    entries, matches, kept = row[:3]
    written = pure.rule(matches, filters=entries)
    if len(row) > 3 and row[3]:
        assert pure.refused(pure.file([written]), MAPPER)
        return
    rule = pure.compiled([written], MAPPER).custom[0]
    assert [name for name in pure.SERIES if rule.keeps(name)] == (kept or [])


@cases("B3")
def test_labels_to_resources(row):
    template, overrides, labels, resources, namespaced = row[:5]
    if len(row) > 5 and row[5]:
        with pytest.raises(LabelProblem):
            pure.labels_of(template, overrides, MAPPER)
        return
    reading = pure.labels_of(template, overrides, MAPPER).read(labels or ())
    assert [r.group_resource for r in reading.resources] == (resources or [])
    assert reading.is_namespaced is namespaced


@cases("B4")
def test_resource_to_label(row):
    template, overrides, key, label, error = row
    if pure.is_constructors(error):
        with pytest.raises(LabelProblem):
            pure.labels_of(template, overrides, MAPPER)
        return
    labels = pure.labels_of(template, overrides, MAPPER)
    if error:
        with pytest.raises(RuleQueryError):
            labels.label(key)
        return
    assert labels.label(key) == label


@cases("B5")
def test_custom_query(row):
    template, series, key, namespace, extra, metric_selector, names, expected, error = row
    labels = pure.labels_of("<<.Resource>>", None, MAPPER)
    if is_refused(template):
        with pytest.raises(gotemplate.TemplateConstructRefused):
            QueryTemplate(template, labels)
        return
    if pure.is_constructors(error) or (expected is None and error):
        with pytest.raises(gotemplate.TemplateError):
            QueryTemplate(template, labels)
        return
    query = QueryTemplate(template, labels)
    wanted = parsed_selector(metric_selector)
    if error:
        with pytest.raises(RuleQueryError):
            pure.custom(query, series, key, namespace, names, wanted, extra)
        return
    assert pure.custom(query, series, key, namespace, names, wanted, extra) == expected


@cases("B6")
def test_external_query(row):
    template, namespaced, series, namespace, metric_selector, expected, error = row
    labels = pure.labels_of("<<.Resource>>", None, MAPPER)
    if is_refused(template):
        with pytest.raises(gotemplate.TemplateConstructRefused):
            QueryTemplate(template, labels)
        return
    if pure.is_constructors(error) or (expected is None and error):
        with pytest.raises(gotemplate.TemplateError):
            QueryTemplate(template, labels)
        return
    query = QueryTemplate(template, labels, is_namespaced=namespaced)
    wanted = parsed_selector(metric_selector)
    if error:
        with pytest.raises(RuleQueryError):
            pure.external(query, series, namespace, wanted)
        return
    assert pure.external(query, series, namespace, wanted) == expected


@cases("B7")
def test_metric_selector(row):
    text, canonical, *echo = row
    if canonical is None:
        with pytest.raises(selector.SelectorError) as caught:
            selector.parse(text)
        assert str(caught.value) == echo[-1].removeprefix("parse: ")
        return
    echoed, error = echo
    found = selector.parse(text)
    assert str(found) == canonical
    operators = {requirement.operator for requirement in found.requirements}
    assert bool(error) is bool(operators & {"!=", "gt", "lt"})
    if operators & {"gt", "lt"}:
        with pytest.raises(selector.SelectorError):
            selector.to_wire(found)
        return
    expected = echo_of(found) if error else json.loads(echoed)  # "!=" is echoed as NotIn
    assert (selector.to_wire(found) or {}) == (expected or {})


@cases("B8")
def test_quantities(row):
    text, milli, decimal, binary, custom = row
    made = readings.milli(float(text))
    if milli == "-9223372036854775808":
        assert made is None  # never a value: section 12
        return
    assert str(made) == milli
    assert quantity.format_milli(made) == decimal == custom
    assert quantity.format_milli(made, "BinarySI") == binary


@cases("B9")
def test_window(row):
    scalar, on_the_wire, error = row
    text = f"resourceRules: {{window: {scalar}}}"
    if error:
        with pytest.raises(ConfigInvalid):
            config.parse(text)
        return
    rules = config.parse(text).config.resource_rules
    assert json.dumps(duration.format_go(rules.window_s)) == on_the_wire


@cases("B10")
def test_config_parsing(row):
    text, expected, error = row
    if error:
        with pytest.raises(ConfigInvalid) as caught:
            config.parse(text)
        line = pure.line_of(error)
        assert line is None or line in [p.line for p in caught.value.problems]
        return
    assert pure.as_upstream(config.parse(text).config) == pure.comparable(expected)


@cases("B11")
def test_resource_normalisation(row):
    text, normalised, singular, error = row
    group, name = mapping.split(text)
    found = mapping.resolve(MAPPER, group, name)
    if error:
        assert found is None
        assert normalised in (text, None)
        if name:
            with pytest.raises(NoMatch) as caught:
                MAPPER.resource_for(name, group)
            assert str(caught.value) == error
        return
    assert (found.group_resource, found.singular) == (normalised, singular)


@cases("B12")
def test_url_segment(row):
    segment, group, name = row
    assert mapping.split(segment) == (group, name)


@cases("B13")
def test_time_parameter(row):
    milliseconds, text = row
    assert client.format_time(milliseconds / 1000) == text


def names_of(reader):
    way = reader.names()
    while True:
        try:
            next(way)
        except StopIteration as end:
            return end.value


@cases("B14")
def test_series_names(row):
    text, name, labels, error = row
    reader = feed_series.SeriesReader()
    page = f"[{text}]".encode()
    if error:
        with pytest.raises(feed_wire.DECODE_ERRORS):
            reader.page(page)
        return
    if json.loads(text) is None:  # no series at all, which is no error
        assert (name, labels or {}) == ("", {})
        reader.end(b'{"status":"success","data":null}')
        assert names_of(reader) == {}
        return
    reader.page(page)
    (shape,) = names_of(reader)[name]
    assert shape - {"__name__"} == set(labels or ())
    first = feed_series.FirstSeries(2)
    first.page(page)
    (found,) = first.found
    assert found.pop("__name__", "") == name
    assert found == (labels or {})


@cases("B15")
def test_query_results(row):
    data, kind, error = row
    document = b'{"status":"success","data":%s}' % data.encode()
    try:
        answer = feed_wire.VectorReader().end(document)
    except feed_wire.DECODE_ERRORS:
        assert error
        return
    # A string is refused after decoding, where upstream refuses it while it decodes.
    assert answer.kind == ("string" if error else kind)
    result = json.loads(data)["result"] or []
    points = [result] if kind == "scalar" else []
    if kind == "vector":
        # A histogram has no float value: upstream serves 0 for it, we serve nothing.
        points = [entry["value"] for entry in result if "value" in entry]
        assert answer.is_float_only is (len(points) == len(result))
    assert list(answer.times) == [at for at, _ in points]
    assert list(map(repr, answer.values)) == [repr(float(value)) for _, value in points]


@cases("A10", "A10-2")
def test_another_provider(row, sampled):
    _, path, status, count = row
    answer = sampled.ask(path)
    assert answer.status == status
    if count is not None:
        assert len(answer.body["items"]) == count


@cases("C4", "C5", "C6")
def test_wire(row, served):
    path, status, content_type, body, calls = row
    demand(served, path, status, content_type, body, calls)


@cases("C7")
def test_wire_access(row, served):
    path, options, status, content_type, body, calls = row
    demand(served, path, status, content_type, body, calls, options)


@cases("C8")
def test_wire_prometheus_fails(row, served):
    mode, path, status, content_type, body = row
    demand(served, path, status, content_type, body, mode=mode)


@cases("C8-2")
def test_wire_prometheus_hangs(row, served):
    path, status, content_type, body, _seconds = row
    demand(served, path, status, content_type, body, mode="hang")


@cases("C9-4")
def test_wire_conflicts(row, in_conflict):
    path, status, content_type, body, calls = row
    demand(in_conflict, path, status, content_type, body, calls)
