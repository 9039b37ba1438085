"""The annotations of an autoscaler that are settings of ours, and what a misspelt one means."""

import difflib
from collections.abc import Iterable

PREFIX = "podscale.io/"
ADOPTED_FROM = f"{PREFIX}adopted-from"  # of an APIService: the patch that gives it back
PAUSED = PREFIX + "paused"
SYNC_PERIOD = PREFIX + "sync-period"
FALLBACK = PREFIX + "fallback"
MAY_LOWER = PREFIX + "fallback-may-lower"
PODS_BY = PREFIX + "pods-by"
COORDINATE = PREFIX + "coordinate"
COMFORT = PREFIX + "comfort-replicas"
SCHEDULE = PREFIX + "schedule"
FORECAST = PREFIX + "forecast"

HPA_SETTINGS = (
    PAUSED, SYNC_PERIOD, FALLBACK, MAY_LOWER, PODS_BY, COORDINATE, COMFORT, SCHEDULE,
    FORECAST,
)  # fmt: skip


def unknown_settings(annotations: Iterable[str]) -> list[str]:
    """Return a sentence for each annotation that looks like a setting of ours and is none."""
    found = []
    for key in sorted(annotations):
        if key.startswith(PREFIX) and key not in HPA_SETTINGS:
            near = difflib.get_close_matches(key[:100], HPA_SETTINGS, n=1, cutoff=0.0)
            found.append(f"{key}: there is no such setting (the nearest is {near[0]})")
    return found
