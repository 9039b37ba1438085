"""What the feed answers: rows of one plan in one namespace, with times.

Immutable and shared by all who asked: an unchanged snapshot is the same object.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.metrics import Failure

NO_ROW = -1


class Reading(Struct, frozen=True, eq=False, weakref=True):
    """The samples of one plan in one namespace, one per row, in Prometheus's order.

    Values are Prometheus's floats (NaN and infinities included: who turns them into
    quantities must refuse those). ``time_s`` is each sample's own time, NaN where it is
    not known, which may be all. Rows that are stale are not among the rows.
    """

    asked_s: float  # evaluation time of the query
    values: NDArray[np.float64]
    time_s: NDArray[np.float64]
    objects: Mapping[str, int]  # object -> its row; upstream's choice among duplicates
    containers: Mapping[tuple[str, str], int]  # (object, container) -> row; container plans only
    labels: Sequence[Mapping[str, str]]  # one per row; external plans only
    is_scalar: bool = False  # external: a scalar answer, upstream serves it with null labels
    stale: Mapping[str, float] = {}  # object -> age in seconds (inf: gone); "" for external rows
    nameless: int = 0  # rows without the object label, which are nobody's
    # True: other objects' rows come from a wider query; the request's own would not have them.
    is_by_name: bool = False

    def row(self, name: str) -> int:
        """Return the row of an object, or ``NO_ROW``."""
        return self.objects.get(name, NO_ROW)


Outcome = Reading | Failure
