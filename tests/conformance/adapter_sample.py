"""Cases A10: a second source of metrics beside Prometheus, behind the same APIs.

The provider is the sample of upstream's tests as a ``MetricsProvider`` of another package
would be written.
"""

from collections.abc import Sequence
from typing import Any

from podscale.core.metrics import (
    Answer,
    ExternalMetric,
    ExternalSample,
    ExternalSamples,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodSamples,
    Question,
    Sample,
)
from podscale.core.selectors import selector

NOW = 1_700_000_000.0
_EXTERNAL = (
    ("my-external-metric", {"foo": "bar"}, 42_000),
    ("my-external-metric", {"foo": "baz"}, 43_000),
    ("other-external-metric", {}, 44_000),
)


class SampleProvider:
    """``some-metric`` of every object, and the external metrics of upstream's sample."""

    def __init__(self, pods: Sequence[tuple[str, dict[str, str]]]) -> None:
        self._pods = list(pods)
        self.questions: list[Question] = []

    def listed(self) -> list[tuple[str, str]]:
        """Return what discovery shows."""
        return [
            ("pods", "some-metric"),
            ("nodes", "some-metric"),
            ("namespaces", "some-metric"),
            ("", "my-external-metric"),
            ("", "other-external-metric"),
        ]

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question."""
        self.questions += questions
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        match question:
            case PodMetric(metric="some-metric"):
                wanted = selector.parse(question.selector)
                names = [name for name, labels in self._pods if wanted.matches(labels)]
                return PodSamples(dict.fromkeys(names, Sample(1_000, NOW)), NOW)
            case ObjectMetric(metric="some-metric"):
                return ObjectSample(Sample(1_000, NOW), NOW)
            case ExternalMetric():
                wanted = selector.parse(question.metric_selector)
                found = [
                    ExternalSample(labels, Sample(milli, NOW))
                    for name, labels, milli in _EXTERNAL
                    if name == question.metric and wanted.matches(labels)
                ]
                return ExternalSamples(found, NOW)
        return NotFound("NoSeries", "the sample has some-metric only")


def objects() -> list[dict[str, Any]]:
    """Return 4 nodes, half of them labelled, 16 pods of namespace ns likewise, and ns."""
    labels = ({"foo": "bar"}, {})
    return [
        {"kind": "Node", "objects": [[None, f"n{i}", labels[i % 2]] for i in range(4)]},
        {"kind": "Pod", "objects": [["ns", f"p{i:02}", labels[i % 2]] for i in range(16)]},
        {"kind": "Namespace", "objects": [[None, "ns", {}]]},
    ]


def provider() -> SampleProvider:
    """Return the provider for these objects."""
    pods = next(row for row in objects() if row["kind"] == "Pod")
    return SampleProvider([(name, labels) for _, name, labels in pods["objects"]])
