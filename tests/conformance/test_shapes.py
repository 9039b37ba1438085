"""Rows of every shape that the headers of the case files describe, which today's files lack."""

import copy

import pytest

from podscale.feed.decoding import wire as feed_wire
from tests.conformance import adapter_behaviour as behaviour
from tests.conformance import adapter_lists as lists
from tests.conformance import hpa_inputs
from tests.conformance import test_adapter as adapter
from tests.conformance import test_coalescing as coalescing
from tests.conformance import test_doctor as doctor
from tests.conformance.adapter_behaviour import files
from tests.conformance.adapter_pure import as_upstream, comparable, line_of
from tests.conformance.adapter_served import demand, served
from tests.conformance.cases import OWN, load
from tests.conformance.hpa_inputs import NOW, ZERO_TIME
from tests.conformance.test_rows_can_fail import call
from tests.conformance.test_vpa import different
from tests.conformance.vpa_deviations import expected_of, rule_of

__all__ = ["files", "served"]

ROWS = [
    # A constructor that fails, whatever stands in the other columns.
    (adapter.test_resource_to_label, ["const", None, "pods", "", "ctor: no .Resource"]),
    (adapter.test_resource_to_label, ["<<.Resource", None, "pods", None, "ctor: unclosed"]),
    (adapter.test_resource_to_label, ["", {"x": {"resource": "bogus"}}, "pods", "", "ctor: no"]),
    (adapter.test_external_query, ["<<nope>>", True, "s", "ns", "", None, "ctor: no function"]),
    (adapter.test_custom_query, ["<<nope>>", "s", "pods", "ns", None, "", ["a"], "", "ctor: no"]),
    # No names at all.
    (adapter.test_custom_query,
     ["<<.LabelMatchers>>", "s", "pods", "n", None, "", None, 'namespace="n",pod=""', ""]),
    (adapter.test_custom_query,
     ["<<.LabelMatchers>>", "s", "nodes", "", None, "x!=1", [], 'x!="1",node=""', ""]),
    (adapter.test_custom_query_template,
     ["none", "<<.LabelMatchers>>", True, "s", "pods", "", None, "", None, 'pods=""']),
    # Windows, in each of the forms in which Go writes one.
    *((adapter.test_config_parsing,
       ["resourceRules: {window: 5m}", {"rules": None, "resourceRules": {"window": window}}, ""])
      for window in ("5m", "5m0s", "300s", 300_000_000_000)),
    (adapter.test_config_parsing,
     ["resourceRules: {}", {"rules": [], "resourceRules": {"window": "0s", "cpu": {}}}, ""]),
    (adapter.test_config_parsing, ["rules: [", "", "yaml: line 7: did not find what it wants"]),
    # Series that do not decode, and such without name or labels.
    *((adapter.test_series_names, [text, "", None, "json: cannot unmarshal"])
      for text in ("[]", "1", '"a"', '{"a":1}', '{"a":["b"]}', '{"a"', '{"a":{}}')),
    (adapter.test_series_names, ['{"b":"c","d":"e"}', "", {"b": "c", "d": "e"}, ""]),
    (adapter.test_series_names, ['{"__name__":"a"}', "a", {}, ""]),
    (adapter.test_series_names, ['{"__name__":"a"}', "a", None, ""]),
    # Results of every type.
    (adapter.test_query_results, ['{"resultType":"scalar","result":[17.5,"1.5"]}', "scalar", ""]),
    (adapter.test_query_results, ['{"resultType":"scalar","result":[17,"NaN"]}', "scalar", ""]),
    (adapter.test_query_results, ['{"resultType":"scalar","result":[17,1]}', None, "no string"]),
    (adapter.test_query_results, ['{"resultType":"vector","result":null}', "vector", ""]),
    (adapter.test_query_results,
     ['{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}', "matrix", ""]),
    (adapter.test_query_results, ['{"resultType":"nothing","result":[]}', None, "unexpected"]),
    (adapter.test_query_results, ['{"resultType":"string","result":[1,"y"]}', None, "unexpected"]),
    # Selectors with != among others; what has no echo comes before it.
    (adapter.test_metric_selector,
     ["a!=b,c=d", "a!=b,c=d", "null", '"!=" is not a valid label selector operator']),
    (adapter.test_metric_selector,
     ["a!=b,c<1", "a!=b,c<1", "null", '"!=" is not a valid label selector operator']),
    (adapter.test_series_filter, ["broken", {"is": "("}, "constructor error"]),
]  # fmt: skip


@pytest.mark.parametrize(("test", "row"), ROWS)
def test_a_row_of_this_shape_passes(test, row):
    call(test, row)


@pytest.mark.parametrize(("test", "row"), [
    (adapter.test_config_parsing,
     ["resourceRules: {window: 5m}", {"resourceRules": {"window": "4m"}}, ""]),
    (adapter.test_series_names, ['{"b":"c"}', "", {"b": "d"}, ""]),
    (adapter.test_series_names, ['{"a":1}', "", None, ""]),
    (adapter.test_query_results, ['{"resultType":"scalar","result":[17,"1"]}', "vector", ""]),
    (adapter.test_query_results, ['{"resultType":"vector","result":null}', None, "unexpected"]),
    (adapter.test_resource_to_label, ["<<.Resource>>", None, "pods", "pod", "ctor: no"]),
])  # fmt: skip
def test_one_that_is_wrong_fails(test, row):
    with pytest.raises((AssertionError, pytest.fail.Exception, *feed_wire.DECODE_ERRORS)):
        call(test, row)


def test_a_line_is_that_of_a_field_and_not_of_a_scanner():
    assert line_of("yaml: unmarshal errors:\n  line 3: field x not found") == 3
    assert line_of("yaml: line 7: mapping values are not allowed in this context") is None


def test_what_is_empty_is_what_is_absent():
    assert comparable({"a": [], "b": {"c": None}, "d": "", "window": "0s"}) == {}
    assert comparable({"namespaced": False}) == {"namespaced": False}
    assert as_upstream.__doc__


async def test_flags_are_told_apart_by_their_shape(files):
    absent = {"kubeconfigPath": "absent", "inCluster": False}
    behaviour.test_a8_kubeconfig(["any", absent, "error (cannot be read)"], files)
    without_key = {"ca": "valid", "cert": "valid", "key": "no such file"}
    await behaviour.test_a8_ca(["any", without_key, "error"], files)


def test_a_pod_that_lacks_one_resource_is_expected_with_the_other():
    row = {
        "pods": ["n/a", "n/b"],
        "results": {
            'cpu{pod=~"a|b"}': [
                {"namespace": "n", "pod": "a", "container": "c", "value": 2, "ts_ms": 10},
                {"namespace": "n", "pod": "b", "container": "c", "value": 3, "ts_ms": 10},
            ],
            'memory{pod=~"a|b"}': [
                {"namespace": "n", "pod": "a", "container": "c", "value": 4, "ts_ms": 11}
            ],
        },
        "expect": [
            {"pod": "n/a", "ts_ms": 10, "window": "1m", "containers": {"c": [2, 4]}}
        ],
    }  # fmt: skip
    assert lists.expected(row) == {
        "n/a": {"ts_ms": 10, "window_s": 60.0, "containers": {"c": [2, 4]}},
        "n/b": {"ts_ms": 10, "window_s": 60.0, "containers": {"c": [3.0, None]}},
    }


METRICS = "/apis/metrics.k8s.io/v1beta1"
CPU = (
    'PROM sum by (pod,container) (irate(container_cpu_usage_seconds_total{namespace="%s",%s,'
    'container!="",pod!=""}[4m]))\n'
)
MEMORY = (
    'PROM sum by (pod,container) (container_memory_working_set_bytes{namespace="%s",%s,'
    'container!="",pod!=""})\n'
)


def usage(name, *containers):
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "<now>",
                     "labels": {"app": "web"}},
        "timestamp": "2023-11-14T22:13:18Z", "window": "5m0s",
        "containers": [{"name": c, "usage": {"cpu": cpu, "memory": memory}}
                       for c, cpu, memory in containers],
    }  # fmt: skip


def items(*found):
    kind = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
    return {**kind, "items": list(found)}


def test_a_namespace_that_fails_affects_itself_only(served):
    pods = (("default", 'pod=~"web-1|web-2"'), ("prod", 'pod="web-1"'))
    calls = [form % of for of in pods for form in (CPU, MEMORY)]
    theirs = usage("web-1", ("c1", "250m", "100Mi"), ("c2", "0", "0"), ("c3", "0", "1500500m"))
    path = f"{METRICS}/pods?labelSelector=app%3Dweb"
    demand(served, path, 200, "application/json", items(theirs), calls)
    with pytest.raises(AssertionError):
        demand(served, path, 200, "application/json", items(theirs), calls[:2])


@pytest.mark.parametrize("mode", ["down500", "422", "html", "nulldata"])
def test_who_does_not_ask_prometheus_does_not_see_it_fail(mode, served):
    empty = items()
    demand(served, f"{METRICS}/namespaces/empty/pods", 200, "application/json", empty, mode=mode)
    absent = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": 'pods "nope" not found', "reason": "NotFound",
        "details": {"name": "nope", "kind": "pods"}, "code": 404,
    }  # fmt: skip
    path = f"{METRICS}/namespaces/default/pods/nope"
    demand(served, path, 404, "application/json", absent, mode=mode)


@pytest.mark.parametrize("path", ["nodes/*/t_node_gauge", "persistentvolumes/pv-1/t_pv_gauge"])
def test_objects_of_the_cluster_see_it_fail_as_others_do(path, served):
    said = {"message": "Internal error occurred: unable to fetch metrics"}
    path = f"/apis/custom.metrics.k8s.io/v1beta2/{path}"
    demand(served, path, 500, "application/json", said, mode="down503")


def vpa_case(kind, inputs, expected, compat="parity"):
    return {"id": "x", "kind": kind, "compat": compat, "inputs": inputs, "expected": expected}


LINEAR = {"type": "linear", "max": 10.0, "bucket_size": 1.0, "epsilon": 1e-15}
LIMIT = {"type": "Container", "max": {"cpu": "2"}}
POD = {"spec": {"containers": [{"name": "a", "resources": {
    "requests": {"cpu": "500m", "memory": "512Mi"}}}]}}  # fmt: skip
VPA = {
    "metadata": {"name": "v"}, "spec": {"updatePolicy": {"updateMode": "InPlaceOrRecreate"}},
    "status": {"recommendation": {"containerRecommendations": [
        {"containerName": "a", "target": {"cpu": "600m", "memory": "512Mi"}}]}},
}  # fmt: skip
CPU_ENTRY = {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "600m"}
SAME = {"op": "add", "path": "/spec/containers/0/resources/requests/memory", "value": "524288Ki"}
EMPTY = {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {}}
NOTED = {"op": "add", "path": "/metadata/annotations/vpaInPlaceUpdated", "value": "true"}
RUNNING = {"status": {"containerStatuses": [
    {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}  # fmt: skip


@pytest.mark.parametrize("case", [
    vpa_case("histogram", {"options": LINEAR, "half_life_s": None, "ops": [
        {"op": "load", "checkpoint": None}]}, {"error": "nil_checkpoint"}),
    vpa_case("limit_range_merge", {"namespace": "n", "type": "Container", "limit_ranges": [
        {"metadata": {"namespace": "other"}, "spec": {"limits": [LIMIT]}}]}, {"item": None}),
    vpa_case("limit_range_merge", {"namespace": "n", "type": "Container", "limit_ranges": [
        {"metadata": {"namespace": "n"}, "spec": {"limits": [LIMIT]}}]}, {"item": LIMIT}),
    vpa_case("effective_resources", {"pod": RUNNING, "container": "a"},
             {"requests": {"cpu": "1000m"}, "limits": {}}),
    vpa_case("effective_resources", {"pod": RUNNING, "container": "a"},
             {"requests": {"cpu": "1000m"}, "limits": None}),
    vpa_case("inplace_patch", {"pod": POD, "vpa": VPA},
             {"resize_patches": [CPU_ENTRY, SAME], "annotation_patches": [NOTED]}),
    vpa_case("inplace_patch", {"pod": POD, "vpa": VPA},
             {"resize_patches": [EMPTY, CPU_ENTRY], "annotation_patches": [NOTED]}),
])  # fmt: skip
def test_a_case_of_the_vpa_of_this_shape_passes_and_can_fail(case):
    if case["kind"] == "inplace_patch":
        case["inputs"]["pod"]["metadata"] = {"name": "p", "annotations": {}}
    assert not different(case, expected_of(case))
    wrong = copy.deepcopy(case)
    for key, value in wrong["expected"].items():
        known = {"item": {"type": "Pod"}, "requests": {"cpu": "2"}, "resize_patches": []}
        wrong["expected"][key] = known.get(key, value) if case["kind"] != "histogram" else "future"
    assert different(wrong, wrong["expected"])


def known_defect(kind, inputs, expected):
    return vpa_case(kind, inputs, expected, "known_defect")


SEQUENCE = {
    "owner_kind": "ReplicaSet", "configured_replicas": 2, "min_replicas_flag": 1,
    "eviction_tolerance": 0.5, "update_mode": "Recreate",
    "pods": [{"phase": "Running", "owner": "none"}, {"phase": "Running"}],
    "ops": [{"op": "evict", "pod": 0}, {"op": "can_in_place", "pod": 0}],
}  # fmt: skip


@pytest.mark.parametrize(("case", "rule"), [
    (known_defect("aggregate_gc", {
        "sample": "memory", "sample_age_s": 60, "state_age_s": 9, "pod_phase": "Failed",
        "pod_deleted": True, "controller_exists": False, "memory_aggregation_interval_s": 3600,
        "memory_aggregation_interval_count": 2}, {"state_deleted": True}), "memory-samples-count"),
    (known_defect("aggregate_gc", {
        "sample": "memory", "sample_age_s": 7200, "state_age_s": 9, "pod_phase": "Running",
        "pod_deleted": False, "controller_exists": True, "memory_aggregation_interval_s": 3600,
        "memory_aggregation_interval_count": 2}, {"state_deleted": True}), "memory-samples-count"),
    (known_defect("disruption_sequence", SEQUENCE, {"results": [True, "InPlaceApproved"]}),
     "unmanaged-pod"),
    (known_defect("disruption_sequence", {
        **SEQUENCE, "owner_kind": "KafkaSet", "pods": [{"phase": "Running"}] * 2,
        "ops": [{"op": "evict", "pod": 0}, {"op": "evict", "pod": 1}]},
        {"results": [True, True]}), "owner-of-another-kind"),
    (known_defect("updater_mode_dispatch", {
        "pods": 2, "update_mode": "InPlace", "can_evict": False, "in_place_patch_fails": False,
        "in_place_decision": "InPlaceDeferred"},
        {"evictions": 0, "in_place_attempts": 2}), "deferred-in-place"),
    (known_defect("container_samples", {"ops": [
        {"op": "memory", "v": 0, "t": "2026-03-02T06:00:00Z"},
        {"op": "memory", "v": 5_000_000, "t": "2026-03-02T06:30:00Z"}]},
        {"accepted": [True, True], "max_memory_peak": 0, "memory_percentiles": [],
         "histogram_calls": [], "window_end": "2026-03-03T06:00:00Z"}), "zero-peak"),
    (known_defect("capping", {
        "pod": {"spec": {"containers": [
            {"name": n, "resources": {"requests": {"memory": "5M"}, "limits": {"memory": "5M"}}}
            for n in "abc"]}},
        "vpa": {"spec": {}, "status": {"recommendation": {"containerRecommendations": [
            {"containerName": n, "target": {"memory": "1Gi"}} for n in "abc"]}}},
        "pod_limit_range": {"type": "Pod", "min": {"memory": "4Gi"}}},
        {"recommendation": {"containerRecommendations": [
            {"containerName": n, "target": {"memory": "1431655765"}} for n in "abc"]}}),
     "pod-memory-minimum"),
    (known_defect("histogram", {"options": LINEAR, "half_life_s": None, "ops": []},
                  {"is_empty": True}), None),
])  # fmt: skip
def test_a_rule_speaks_of_a_defect_whatever_its_id(case, rule):
    assert rule_of(case) == rule
    assert not different(case, expected_of(case))
    if rule is not None:
        assert rule_of({**case, "compat": "parity"}) is None


def test_what_the_api_server_would_refuse_is_expected_to_be_left():
    inputs = {
        "pod": {**copy.deepcopy(POD), "metadata": {"name": "p", "annotations": {}}}, "vpa": VPA,
        "container_limit_range": None, "pod_limit_range": None,
    }  # fmt: skip
    sent = {"resize_patches": [CPU_ENTRY], "annotation_patches": [NOTED]}
    case = vpa_case("inplace_patch", inputs, sent)
    assert expected_of(case) == sent
    ratio = {"type": "Container", "maxLimitRequestRatio": {"cpu": "1"}}
    pod = copy.deepcopy(inputs["pod"])
    pod["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "700m"}
    refused = vpa_case(
        "inplace_patch", {**inputs, "pod": pod, "container_limit_range": ratio}, sent
    )
    assert expected_of(refused) == {"resize_patches": [], "annotation_patches": []}


def test_an_age_of_zero_is_gos_zero_time():
    (event,) = hpa_inputs.events([{"change": 1, "age_s": "zero"}])
    (past,) = hpa_inputs.recommendations([{"replicas": 1, "age_s": 0}])
    assert (event.at, past.at) == (ZERO_TIME, NOW)


def test_a_default_without_an_object_is_dropped():
    case = {
        "api": "custom", "template": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) or "
        "vector(0)", "resource_labels": {"namespace": "namespace", "object": "pod"},
        "provable": True, "outcome": "widen", "local_default": "dropped",
        "widened_example": 'sum by (namespace,pod) (ser{namespace=~"n1|n2"})',
    }  # fmt: skip
    coalescing.test_verdict(case)
    with pytest.raises(AssertionError):
        coalescing.test_verdict({**case, "api": "external"})


@pytest.mark.parametrize("written", ["pod", "Pod", "pods"])
def test_the_doctor_is_asked_as_people_write(written):
    listed = load(OWN / "doctor.yaml")["cases"]
    case = next(each for each in listed if each["inputs"]["asked"].get("resource") == "pods")
    asked = {**case["inputs"]["asked"], "resource": written}
    doctor.test_the_first_failing_stage_is_named(
        {**case, "inputs": {**case["inputs"], "asked": asked}}
    )
