"""How many pods stand behind each label set."""

from collections.abc import Iterator

from vpa.model.samples.entries import PodEntry
from vpa.model.samples.membership import Labels


class PodCounts:
    """Counts pods by namespace and labels.

    Finished ones too, as upstream: a CronJob matches pods between two of its runs.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, Labels], int] = {}

    def __iter__(self) -> Iterator[tuple[str, Labels, int]]:
        for (namespace, labels), count in self._known.items():
            yield namespace, labels, count

    def __contains__(self, place: object) -> bool:
        return place in self._known

    def replace(self, namespace: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Note that a pod came (``old`` None), changed, or went (``new`` None)."""
        self._add(namespace, old, -1)
        self._add(namespace, new, 1)

    def _add(self, namespace: str, pod: PodEntry | None, step: int) -> None:
        if pod is None:
            return
        place = (namespace, pod.labels)
        self._known[place] = self._known.get(place, 0) + step
        if not self._known[place]:
            del self._known[place]
