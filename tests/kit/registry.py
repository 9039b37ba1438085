"""A registry of metrics made in one step, where no loop has to be spared."""

from collections.abc import Sequence

from adapter.discovery.registry import MetricRegistry, RuleState, merging


def merge(states: Sequence[RuleState], before: MetricRegistry) -> MetricRegistry:
    """Return what ``merging`` comes to."""
    steps = merging(states, before)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: MetricRegistry = end.value
            return made
