"""Whatever amounts the API server lets through, a pass comes to its end and can be kept."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import looptime
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpa.cluster import writer
from hpa.decide.api.reading import read, read_status
from hpa.decide.conclusion import conclude
from hpa.decide.decision import DONE
from hpa.decide.numbers import INT32_MAX, INT64_MAX, INT64_MIN
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.history.decision_log import PackedTrace, encode, shape_of
from podscale.core.metrics import (
    ExternalSample,
    ExternalSamples,
    MetricsProvider,
    ObjectSample,
    PodSamples,
    Sample,
    Unavailable,
)
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.wire import convert, decode
from podscale.kube.columns.pod_set import template
from podscale.kube.objects.autoscaler import Autoscaler, AutoscalerStatus
from podscale.kube.objects.pod import Container, PodSpec, ResourceRequirements
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW
from tests.unit.hpa.world import NS, Cluster, deployment_object, in_columns, pod_object

LARGE = (
    "1e19", "8E", "9e18", "16Ei", "1e40", "9" * 64, "18446744073709551616", "10P",
    "9223372036854775807m", "9223372036854775808m", "92233720368547758070m", "1", "1m", "0.1",
)  # fmt: skip
texts = st.one_of(
    st.sampled_from(LARGE),
    st.integers(1, 10**64 - 1).map(str),
    st.builds("{}e{}".format, st.integers(1, 999), st.integers(-9, 60)),
    st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["m", "k", "P", "E", "Ei"])),
)
values = st.one_of(
    st.sampled_from([INT64_MAX, INT64_MAX - 1, INT64_MIN, 2**62, -1, 0, 1, 1000]),
    st.integers(INT64_MIN, INT64_MAX),
)


def _metric(kind: str, by: str, text: str, percent: int) -> dict[str, Any]:
    target: dict[str, Any] = {"type": by}
    if by == "Utilization":
        target["averageUtilization"] = percent
    else:
        target["value" if by == "Value" else "averageValue"] = text
    name = {"metric": {"name": "m"}}
    match kind:
        case "Resource":
            return {"type": kind, "resource": {"name": "cpu", "target": target}}
        case "Pods":
            return {"type": kind, "pods": {**name, "target": target}}
        case "External":
            return {"type": kind, "external": {**name, "target": target}}
    described = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    return {"type": kind, "object": {**name, "describedObject": described, "target": target}}


KINDS = (
    ("Resource", "Utilization"), ("Resource", "AverageValue"), ("Pods", "AverageValue"),
    ("External", "Value"), ("External", "AverageValue"), ("Object", "Value"),
    ("Object", "AverageValue"),
)  # fmt: skip
KIND_OF = dict(zip(("Resource", "Pods", "External", "Object"),
                   ("resource", "pods", "external", "object"), strict=True))  # fmt: skip


def _answer(kind: str, amounts: list[int], *, in_column: bool) -> Any:
    match kind:
        case "External":
            return ExternalSamples([ExternalSample({}, Sample(each, NOW)) for each in amounts], NOW)
        case "Object":
            return ObjectSample(Sample(amounts[0], NOW), NOW)
    samples = {f"web-{n}": Sample(each, NOW, 30.0) for n, each in enumerate(amounts)}
    return PodSamples(in_columns(samples) if in_column else samples, NOW)


def _pods(requests: list[str]) -> Pods:
    count = len(requests)
    resources = (ResourceRequirements({"cpu": each}, {"memory": each}) for each in requests)
    specs = (PodSpec((Container("app", each),)) for each in resources)
    templates = tuple(template(each) for each in specs)
    return Pods(
        tuple(f"web-{n}" for n in range(count)),
        bytes([PodPhase.RUNNING] * count),
        bytes([PodReadiness.TRUE] * count),
        bytes(count),
        (NOW - 3600.0,) * count,
        (NOW - 3600.0,) * count,
        template=tuple(range(count)),
        templates=templates,
    )


@given(
    st.sampled_from(KINDS),
    st.lists(values, min_size=1, max_size=3),
    st.lists(texts, min_size=4, max_size=4),
    st.integers(1, 200),
    st.integers(0, 2**32).map(Random),
)
@settings(max_examples=1500, deadline=None)
def test_every_pass_ends_and_is_kept(
    kind: tuple[str, str], amounts: list[int], written: list[str], percent: int, draw: Random
) -> None:
    shown = {"type": kind[0], KIND_OF[kind[0]]: {"current": {"averageValue": written[3]}}}
    autoscaler = convert(
        {
            "metadata": {"name": "web", "namespace": NS},
            "spec": {
                "maxReplicas": 2**31 - 1,
                "metrics": [_metric(*kind, written[0], percent)],
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
            "status": {"currentMetrics": [shown]},
        },
        Autoscaler,
    )
    hpa = read(autoscaler)
    pods = _pods((written[1:3] * 2)[: len(amounts)])
    answer = _answer(kind[0], amounts, in_column=draw.random() < 0.5)
    size = draw.choice((1, 2, len(amounts), 1000))
    seen = Observation(hpa, Scale(size, draw.choice((0, size)), "app=web"), pods, (answer,))
    decision = decide(seen, Past(), worlds.settings(draw), NOW)
    done = conclude(decision, DONE, NOW)
    assert PackedTrace.of(done.trace).trace() == done.trace
    encode(done.trace)
    shape_of(done.trace)
    msgspec.json.encode(explain(done.trace))
    body = msgspec.json.encode(writer.status_changes(hpa.status, done.status))
    again = read_status(decode(body, AutoscalerStatus))
    assert [each.value_milli for each in again.metrics] == [
        each.value_milli for each in done.status.metrics
    ]
    assert 0 <= (decision.replicas or 0) <= INT32_MAX


@given(st.lists(values.filter(lambda each: each >= 0), max_size=3), st.integers(1, 99))
def test_a_usage_that_go_cannot_add_up_never_asks_for_fewer(
    amounts: list[int], percent: int
) -> None:
    count = len(amounts) + 1
    metric = _metric("Resource", "Utilization", "", percent)
    hpa = read(
        convert(
            {"metadata": {"name": "web"}, "spec": {"maxReplicas": 1000, "metrics": [metric]}},
            Autoscaler,
        )
    )
    answer = _answer("Resource", [INT64_MAX, *amounts], in_column=False)
    seen = Observation(hpa, Scale(count, count, "app=web"), _pods(["1"] * count), (answer,))
    assert decide(seen, Past(), Settings(), NOW).replicas == max(2 * count, 4)


@pytest.mark.parametrize("mode", ["replace", "shadow"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64, 10**30, 10**400])
def test_a_provider_that_answers_no_number_of_64_bits_fails_that_metric(
    mode: str, value: int
) -> None:
    traces: Mapping[str, Any] = {}

    async def play() -> None:
        nonlocal traces
        cluster = Cluster(settings=Settings(mode=mode, sync_period_s=15.0))  # type: ignore[arg-type]
        provider: MetricsProvider = cluster.provider
        assert provider is not None
        for name in ("web", "other"):
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
            metric = _metric("External", "AverageValue", "8E" if name == "web" else "1", 50)
            cluster.put(
                {
                    "metadata": {
                        "name": name, "namespace": NS, "uid": name, "resourceVersion": "1",
                        "generation": 1,
                    },
                    "spec": {"scaleTargetRef": target, "maxReplicas": 9, "metrics": [metric]},
                },
                deployment_object(name, 2),
            )  # fmt: skip
        cluster.put_pods(*(pod_object(name, 0) for name in ("web", "other")))
        cluster.provider.answer_with = lambda _question: ExternalSamples(
            [ExternalSample({}, Sample(value, NOW))], NOW
        )
        await cluster.run_for(40.0)
        assert cluster.scales() == []
        traces = {name: cluster.controller.traces.last((NS, name)) for name in ("web", "other")}

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(play(), 100.0))
    finally:
        loop.close()
    for trace in traces.values():
        assert isinstance(trace.observation.answers[0], Unavailable)
        assert explain(trace).first_reason == "MetricUnavailable"
