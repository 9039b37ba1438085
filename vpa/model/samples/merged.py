"""Sums of aggregates: what a VPA knows of one container name.

Several label sets, and what a checkpoint brought, become one histogram per group. All
groups are merged side by side, so the number of steps is that of the largest group.
"""

from collections.abc import Sequence

import numpy as np

from vpa.model.api.policy import Windows
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import Aggregates


def merged(aggregates: Aggregates, groups: Sequence[Columns]) -> Aggregates:
    """Return a copy with one column per group, numbered as the groups; none may be empty."""
    result = Aggregates(capacity=max(len(groups), 1))
    result.open(len(groups), 0.0, Windows())
    deepest = max((group.size for group in groups), default=0)
    for depth in range(deepest):
        into = np.array([i for i, g in enumerate(groups) if g.size > depth], dtype=np.intp)
        columns = np.array([groups[i][depth] for i in into], dtype=np.intp)
        for mine, theirs in (
            (result.cpu, aggregates.cpu),
            (result.memory, aggregates.memory),
        ):
            if depth == 0:
                mine.copy_from(into, theirs, columns)
            else:
                mine.merge(into, theirs, columns)
        result.cpu_span.merge(into, aggregates.cpu_span, columns)
        result.memory_span.merge(into, aggregates.memory_span, columns)
    return result
