"""Answers from the aggregated metrics APIs: metrics-server, KEDA, any other adapter.

The second ``MetricsProvider`` of our own, beside the adapter's in-process one. Paths
and reading of the answers follow the in-tree HPA's metrics client.
"""

from collections.abc import Sequence

from podscale.core.metrics import Answer, Question
from podscale.kube.api import Api
from podscale.kube.discovery import Discovery


class ApiProvider:
    """A ``MetricsProvider`` over HTTP. Equal questions of one batch are asked once."""

    def __init__(
        self, api: Api, discovery: Discovery, *, timeout_s: float = 10.0, concurrency: int = 16
    ) -> None:
        raise NotImplementedError

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer per question, in order."""
        raise NotImplementedError
