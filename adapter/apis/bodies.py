"""JSON of the metrics APIs, joined from pieces: field order and spelling are upstream's.

Everything that does not change from one item to the next is encoded once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from podscale.core.metrics import Sample
from podscale.core.quantity import format_milli
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.resource import Resource

encode = msgspec.json.encode

T = TypeVar("T")
Item = tuple[str, int, float, float | None]  # name, milli-units, unix time, window in seconds
# Labels (None: of a scalar), then as above.
ExternalItem = tuple[Mapping[str, str] | None, int, float, float | None]


def item(described: T, sample: Sample, asked_s: float) -> tuple[T, int, float, float | None]:
    """Return a sample to write; one of unknown time counts as just asked."""
    time_s = asked_s if sample.time_s is None else sample.time_s
    return described, sample.value_milli, time_s, sample.window_s


@lru_cache(maxsize=256)
def timestamp(second: int) -> bytes:
    """Return a JSON string: RFC 3339 in seconds, UTC."""
    return encode(rfc3339(second))


def api_version(resource: Resource) -> str:
    """Return ``group/version``; upstream writes ``/v1`` for the core group, and so do we."""
    return f"{resource.group}/{resource.version}"


def metric_values(
    version: str,
    resource: Resource,
    namespace: str,
    metric: str,
    selector: Mapping[str, object] | None,
    items: Iterable[Item],
) -> bytes:
    """Return a MetricValueList of custom.metrics.k8s.io ``version``."""
    kind, name_of = encode(resource.kind), encode(metric)
    place = b'"namespace":%b,' % encode(namespace) if namespace else b""
    api = encode(api_version(resource))
    selected = encode(selector)
    if version == "v1beta1":
        middle = b',"apiVersion":%b},"metricName":%b,"timestamp":' % (api, name_of)
        end = b',"selector":%b}' % selected
    else:
        middle = b',"apiVersion":%b},"metric":{"name":%b,"selector":%b},"timestamp":' % (
            api,
            name_of,
            selected,
        )
        end = b"}"
    start = b'{"describedObject":{"kind":%b,%b"name":' % (kind, place)
    pieces = _pieces(items, start, middle, b"windowSeconds", end)
    return _list(b"MetricValueList", b"custom.metrics.k8s.io/" + version.encode(), pieces)


def external_items(metric: str, items: Iterable[ExternalItem]) -> bytes:
    """Return some items of an ExternalMetricValueList, with commas between them."""
    start = b'{"metricName":%b,"metricLabels":' % encode(metric)
    return b",".join(_pieces(items, start, b',"timestamp":', b"window", b"}"))


def external_list(pages: Sequence[bytes]) -> bytes:
    """Return an ExternalMetricValueList of what ``external_items`` returned, page by page."""
    return _list(b"ExternalMetricValueList", b"external.metrics.k8s.io/v1beta1", pages)


def _pieces(
    items: Iterable[Item | ExternalItem], start: bytes, middle: bytes, window: bytes, end: bytes
) -> list[bytes]:
    return [
        b'%b%b%b%b%b,"value":"%b"%b'
        % (
            start,
            encode(described),
            middle,
            timestamp(int(time_s)),
            b"" if window_s is None else b',"%b":%d' % (window, round(window_s)),
            format_milli(milli).encode(),
            end,
        )
        for described, milli, time_s, window_s in items
    ]


def _list(kind: bytes, version: bytes, pieces: Sequence[bytes]) -> bytes:
    head = b'{"kind":"%b","apiVersion":"%b","metadata":{},"items":[' % (kind, version)
    # One join: each copy of 100,000 items takes milliseconds.
    return b"".join((head, *_between(pieces), b"]}\n"))


def _between(pieces: Sequence[bytes]) -> Iterator[bytes]:
    for place, piece in enumerate(pieces):
        if place:
            yield b","
        yield piece
