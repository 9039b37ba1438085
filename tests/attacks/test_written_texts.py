"""Texts that users write into objects: whatever stands there, it is refused with a reason.

Annotations, quantities, checkpoints and stored histories are decoded on the way in, where one
that raises would keep its object, or every object after it, from being taken in at all.
"""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hpa.decide.api import reading
from hpa.decide.api.options import MOST_PROBLEMS, read_options
from hpa.decide.api.reading import (
    BEHAVIOR,
    CONDITIONS,
    METRICS,
    ConversionError,
    to_v2,
)
from hpa.history.configmaps import MOST_READ_BYTES, history_records
from podscale.core import disruptions
from podscale.core.quantity import QuantityError
from podscale.core.settings import FALLBACK, MAY_LOWER, PAUSED, PODS_BY, SCHEDULE, SYNC_PERIOD
from podscale.kube.client.wire import ObjectMeta, convert, decode
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.cluster import ConfigMap
from tests.pods import pod_of
from vpa.admission.patches.boost import ANNOTATION_PREFIX, read_original
from vpa.explain import admission
from vpa.model.estimation import recommendation
from vpa.model.estimation.annotations import ANNOTATIONS, VpaSettings, settings_from
from vpa.model.samples import checkpoints
from vpa.model.samples.checkpoints import CheckpointError, check_histogram, from_wire
from vpa.updater.cluster.pod_disruptor import INFEASIBLE
from vpa.updater.cluster.pod_observer import remembered_recommendation
from vpa.updater.decide import disruption_budget
from vpa.updater.loop import memory

DEEP = 100_000  # brackets: an annotation may have 256 KB

HOSTILE: dict[str, str] = {
    "deep lists": "[" * DEEP,
    "deep lists, closed": "[" * DEEP + "]" * DEEP,
    "lists within the decoder's reach": "[" * 900 + "]" * 900,
    "deep objects": '{"a":' * (DEEP // 2),
    "deep value of a name": '{"queue":' + "[" * DEEP + "]" * DEEP + "}",
    "deep value within reach": '{"queue":' + "[" * 900 + "]" * 900 + "}",
    "deep value of every field": json.dumps(
        dict.fromkeys(["requests", "limits", "at", "windows", "vpa", "containers"], 0)
    ).replace("0", "[" * 20_000 + "]" * 20_000),
    "many digits": "9" * 5000,
    "many digits in a value": '{"queue":' + "9" * 5000 + "}",
    "a large exponent": "1e999999999",
    "a large exponent in a value": '{"queue":1e999999999,"at":-1e400}',
    "not a number": '{"queue":NaN,"at":Infinity}',
    "digits of another script": "٣" * 5000,
    "a lone surrogate, escaped": '{"queue":"\\ud800","\\udfff":"hold"}',
    "a lone surrogate": '{"queue":"\ud800"}',
    "NUL": '{"queue":"\x00"}\x00',
    "empty": "",
    "blank": " \t\n",
    "null": "null",
    "true": "true",
    "a list": '["hold"]',
    "lists as amounts": '{"requests":{"cpu":[]},"limits":[]}',
    "very large amounts": '{"requests":{"cpu":"1e60","memory":' + "9" * 60 + "}}",
    "same name again and again": "{" + ",".join(['"a":"hold"'] * 20_000) + "}",
    "many names": json.dumps({str(n): n for n in range(20_000)}),
    "long durations": "9" * 5000 + "h",
    "many durations": "1ns" * 80_000,
    "last: of many digits": '{"queue":"last:' + "9" * 5000 + 's"}',
    "windows": "Mon 00:00-24:00 " + "x/" * 50_000,
    "a zone out of its folder": "Mon 00:00-24:00 ../../../../../etc/passwd",
    "counts by the hour": ", ".join(["2026-11-21T14:" + "9" * 4000] * 3),
    "hours of no year": "0000-00-00T99:1, 9999-12-31T23:1, -1-1-1T1:1",
}

anything = st.one_of(
    st.text(max_size=200),
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.text(max_size=20), st.floats(),
            st.integers(-(10**40), 10**40),
            st.sampled_from(["hold", "last:1h", "replicas:3", "1Gi", "2026-11-21T14:00:00Z"]),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(
                st.sampled_from([
                    "requests", "limits", "cpu", "memory", "at", "windows", "vpa", "containers",
                    "queue", "first_s", "containerRecommendations", "target", "containerName",
                ]),
                inner, max_size=4,
            ),
        ),
    ).map(json.dumps),
)  # fmt: skip


def _options(text: str) -> None:
    for key in (PAUSED, SYNC_PERIOD, FALLBACK, MAY_LOWER, PODS_BY, SCHEDULE, "podscale.io/other"):
        found = read_options({key: text})
        assert len(found.problems) <= MOST_PROBLEMS + 1
        assert all(len(each) < 500 for each in found.problems)


def _earlier_version(text: str) -> None:
    keys = (METRICS, CONDITIONS, BEHAVIOR)
    try:
        to_v2({
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "web", "annotations": dict.fromkeys(keys, text)},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        })  # fmt: skip
    except ConversionError:
        return


def _pod(key: str, text: str) -> PodView:
    return structs.replace(pod_of({}), annotations={key: text})


def _vpa_settings(text: str) -> None:
    keys = sorted(ANNOTATIONS)
    settings_from(dict.fromkeys(keys, text), VpaSettings())


def _pace(text: str) -> None:
    for key in (disruptions.WINDOWS, disruptions.PER_DAY):
        try:
            disruptions.pace_of({key: text})
        except disruptions.PaceError:
            continue


READERS: dict[str, Callable[[str], object]] = {
    "hpa: podscale.io": _options,
    "hpa: autoscaling.alpha.kubernetes.io": _earlier_version,
    "vpa: settings": _vpa_settings,
    "vpa: pace": _pace,
    "vpa: spent": lambda text: memory.hours_of({disruption_budget.SPENT: text}),
    "vpa: boost": lambda text: read_original(_pod(ANNOTATION_PREFIX + "app", text), "app"),
    "vpa: infeasible": lambda text: remembered_recommendation(_pod(INFEASIBLE, text)),
    "vpa: reasons": lambda text: admission.read({admission.REASONS: text}),
    "vpa: open windows": lambda text: checkpoints.decode_extra(text, "2026-11-21T14:00:00Z"),
    "vpa: whole cores": lambda text: recommendation.integer_cpu_containers(
        {f"vpa-post-processor.kubernetes.io/{text}_integerCPU": "true"}
    ),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_an_annotation_is_read_or_left_out_whatever_it_says(reader: str, text: str) -> None:
    READERS[reader](text)


@given(anything)
def test_no_annotation_raises(text: str) -> None:
    for read in READERS.values():
        read(text)


@pytest.mark.parametrize("text", ["[" * DEEP, '{"queue":' + "[" * DEEP, '{"queue":"hold"} [['])
def test_an_autoscaler_with_a_fallback_of_deep_brackets_is_taken_in_and_says_so(text: str) -> None:
    written = decode(
        msgspec.json.encode({
            "metadata": {
                "name": "web", "namespace": "shop", "annotations": {FALLBACK: text}
            },
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            },
        }),
        Autoscaler,
    )  # fmt: skip
    found = reading.read(written)
    assert found.max_replicas == 3
    (problem,) = found.options.problems
    assert problem.startswith("podscale.io/fallback: not ")


amounts = st.one_of(
    st.sampled_from(["1e64", "1e999999999", "9" * 128, "-1", "8E", "1e19", "1Ei", "", ".", "0e9"]),
    st.text(max_size=10),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
)


@given(st.lists(amounts, min_size=5, max_size=5))
def test_an_autoscaler_is_read_or_refused_for_its_amounts(texts: list[Any]) -> None:
    target = {"type": "Value", "value": texts[0], "averageValue": texts[1]}
    current = {"value": texts[2], "averageValue": texts[3]}
    written = convert(
        {
            "metadata": {"name": "web"},
            "spec": {
                "metrics": [{"type": "External", "external": {"target": target}}],
                "behavior": {"scaleUp": {"tolerance": texts[4]}},
            },
            "status": {"currentMetrics": [{"type": "External", "external": {"current": current}}]},
        },
        Autoscaler,
    )
    try:
        reading.read(written)
    except QuantityError:
        return


CHECKPOINTS: dict[str, str] = {
    "an amount of no float": '{"version":"v3","cpuHistogram":{"totalWeight":' + "9" * 400 + "}}",
    "a weight of no float": '{"version":"v3","cpuHistogram":{"totalWeight":1,"bucketWeights":'
    '{"0":' + "9" * 400 + "}}}",
    "a bucket of many digits": '{"version":"v3","cpuHistogram":{"bucketWeights":{"'
    + "9" * 5000
    + '":1}}}',
    "too many samples": '{"version":"v3","totalSamplesCount":' + "9" * 400 + "}",
    "a time of no year": '{"version":"v3","lastUpdateTime":"0001-01-01T00:00:00+14:00"}',
    "a time that is a list": '{"version":"v3","lastUpdateTime":' + "[" * 900 + "]" * 900 + "}",
    "a version that is a list": '{"version":' + "[" * 900 + "]" * 900 + "}",
}


@pytest.mark.parametrize("text", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_is_loaded_or_refused(text: str) -> None:
    try:
        found = from_wire(text)
        for histogram in (found.cpu, found.memory):
            check_histogram(histogram, 100)
    except (CheckpointError, msgspec.DecodeError):
        return
    assert float(found.samples) >= 0.0
    for histogram in (found.cpu, found.memory):
        assert all(float(each) >= 0.0 for each in histogram.bucket_weights.values())


HISTORIES: dict[str, bytes] = {
    **{name: text.encode(errors="surrogatepass") for name, text in HOSTILE.items()},
    **{
        f"{name}, of one object": b'{"shop/web":' + text.encode(errors="replace") + b"}"
        for name, text in HOSTILE.items()
    },
    "invalid UTF-8": b'{"shop/\xff":{"at":"\xfe"}}',
}


@pytest.mark.parametrize("text", HISTORIES.values(), ids=HISTORIES)
def test_a_stored_history_is_read_or_left_out(text: bytes) -> None:
    for packed in (text, gzip.compress(text), gzip.compress(text)[:-9]):
        history_records(ConfigMap(ObjectMeta(name="h"), binary_data={"history.json.gz": packed}))


def test_a_stored_history_that_unpacks_to_more_than_is_ever_written_takes_no_memory() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = b"".join(packer.compress(b" " * 2**20) for _ in range(128)) + packer.flush()
    assert len(packed) < 2**18, "a ConfigMap takes eight times as much"
    tracemalloc.start()
    found = history_records(ConfigMap(ObjectMeta(), binary_data={"history.json.gz": packed}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == {}
    assert peak < 4 * MOST_READ_BYTES
