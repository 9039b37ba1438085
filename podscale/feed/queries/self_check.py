"""Whether a batch said the same as one member's own query. Pure."""

import math
from collections.abc import Mapping, Sequence

from podscale.feed.queries.group import NamespaceRead
from podscale.feed.reading import Reading


def agrees(
    sheet: NamespaceRead, own: Reading, objects: Sequence[str], names: Sequence[str]
) -> bool:
    """Return whether ``sheet`` has what ``own`` has of the ``names`` asked for; ``()``: of all
    series. ``objects`` are those of the rows of ``own``, which still has the stale ones.
    """
    if not names:
        return _has_same_series(sheet.reading, own, objects)
    batch = sheet.reading
    for name in names:
        if name in batch.stale or name in sheet.duplicated:
            continue
        one, other = own.row(name), batch.row(name)
        if (one < 0) != (other < 0):
            return False
        if one >= 0 and not _near(float(own.values[one]), float(batch.values[other])):
            return False
    return True


def _has_same_series(batch: Reading, own: Reading, objects: Sequence[str]) -> bool:
    left, every = _by_labels(batch), _by_labels(own)
    fresh = [
        _key(labels)
        for labels, name in zip(own.labels, objects, strict=True)
        if name not in batch.stale
    ]
    return all(key in left for key in fresh) and all(
        key in every and _near(value, every[key]) for key, value in left.items()
    )


def _by_labels(rows: Reading) -> dict[frozenset[tuple[str, str]], float]:
    return {
        _key(labels): value for labels, value in zip(rows.labels, rows.values.tolist(), strict=True)
    }


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _near(one: float, other: float) -> bool:
    return (one != one and other != other) or math.isclose(one, other, rel_tol=1e-9)
