"""How many active pods stand behind each label set."""

from collections.abc import Iterator

from vpa.model.entries import PodEntry
from vpa.model.membership import Labels


class Presence:
    """Counts pods by namespace and labels; finished pods do not count."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, Labels], int] = {}

    def __iter__(self) -> Iterator[tuple[str, Labels, int]]:
        for (namespace, labels), live in self._live.items():
            yield namespace, labels, live

    def replace(self, namespace: str, old: PodEntry | None, new: PodEntry | None) -> None:
        """Note that a pod came (``old`` None), changed, or went (``new`` None)."""
        self._add(namespace, old, -1)
        self._add(namespace, new, 1)

    def _add(self, namespace: str, pod: PodEntry | None, step: int) -> None:
        if pod is None or not pod.is_active:
            return
        place = (namespace, pod.labels)
        self._live[place] = self._live.get(place, 0) + step
        if not self._live[place]:
            del self._live[place]
