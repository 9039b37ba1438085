"""What is wrong with a rule by its list of series: the same words in the doctor's report, in
what a running adapter tells, and in the status of a MetricRule. Pure."""

from adapter.discovery.listing import RuleListing
from adapter.discovery.registry import RuleState
from adapter.stages import Stage


def problem_of(listing: RuleListing) -> tuple[Stage, str] | None:
    """Return at which stage a rule loses all its series, and why; ``None``: it exposes some."""
    if listing.exposed:
        return None
    if not listing.shapes:
        return Stage.NO_SERIES, "seriesQuery finds nothing within the discovery window"
    filtered = listing.losses.get(Stage.FILTERED_OUT, 0)
    if filtered == sum(listing.losses.values()):
        names = "series name" if filtered == 1 else "series names"
        text = f"{filtered} {names} found, and none passes seriesFilters and matches"
        return Stage.FILTERED_OUT, text
    return Stage.NO_RESOURCE_LABEL, "no label of the series maps to a resource"


def problem_of_state(state: RuleState) -> tuple[Stage, str] | None:
    """Return what is wrong with a rule that was listed, or has failed to be."""
    if state.failure is not None:
        return state.failure.stage, state.failure.message
    return None if state.listing is None else problem_of(state.listing)
