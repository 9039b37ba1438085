"""What the controller was started with: flags, gates, and the release it follows; and which step
of a decision is left out, for the question whether it mattered."""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct

from hpa.decide.api.spec import HPA

Release = Literal["1.36", "1.37", "1.38"]
RELEASES: Mapping[str, Release] = {each: each for each in get_args(Release)}
Mode = Literal["replace", "shadow"]


class Gates(Struct, frozen=True):
    """Upstream's feature gates; the fields carry upstream's names in snake case."""

    scale_to_zero: bool = True
    configurable_tolerance: bool = True
    pod_level_resources: bool = True
    generation: bool = True
    optimized_selector_store: bool = True

    @classmethod
    def of(cls, release: Release) -> "Gates":
        """Return the gates of a release, with the features on that it has."""
        is_new = release != "1.36"
        return cls(generation=is_new, optimized_selector_store=is_new)


class Settings(Struct, frozen=True):
    """Flags with kube-controller-manager's defaults. Durations are seconds."""

    release: Release = "1.37"
    gates: Gates = Gates()
    mode: Mode = "replace"
    tolerance: float = 0.1
    downscale_stabilization_s: float = 300.0
    cpu_initialization_s: float = 300.0
    initial_readiness_delay_s: float = 30.0
    sync_period_s: float = 15.0
    min_sync_period_s: float = 1.0  # that an object may set
    coordinates: bool = False  # with VPAs, where an object does not say
    holds_after_outage: bool = True  # while a window reaches into an outage, nothing shrinks
    metric_max_age_s: float | None = None  # None: a provider's own limit is the only one

    def period_of(self, hpa: HPA) -> float:
        """Return how many seconds lie between two passes over ``hpa``."""
        own_s = hpa.options.sync_period_s
        if own_s is None:
            return self.sync_period_s
        return max(own_s, min(self.min_sync_period_s, self.sync_period_s))

    @property
    def ignores_succeeded(self) -> bool:
        """Succeeded pods are left out like Failed ones (kubernetes PR 141302)."""
        return self.release == "1.38"

    @property
    def is_after_1_36(self) -> bool:
        """Of HPAs that select one pod an example is told, an Object metric is named in order, and a
        pass whose first invalid metric is wrong in the spec counts as ``spec``.

        AverageValue with status.replicas 0 reports 0, and Object usage is capped: so say the cases;
        1.37.2 as released still shows -2^63 (on amd64), and caps nothing.
        """
        return self.release != "1.36"

    @property
    def writes_generation(self) -> bool:
        """Gate HPAGeneration, which 1.36 does not have."""
        return self.gates.generation and self.is_after_1_36


def acts_at_once(settings: Settings, old_generation: int, new_generation: int) -> bool:
    """Return whether an update of the object is decided now rather than at its next turn.

    Follows updateHPA: only a change of the spec does, and only with HPAGeneration.
    """
    return settings.gates.generation and old_generation != new_generation


Bucket = Literal["missing", "pending", "initializing", "never_ready"]


class Variation(Struct, frozen=True):
    """Which steps take place.

    A reason is binding if the number would be another one without it alone; the explanation finds
    out by deciding again under a variation. Controllers always decide as it ``ACTUAL``ly is.
    """

    tolerance: bool = True
    window: bool = True
    rate: bool = True
    bound: bool = True
    forecast: bool = True
    schedule: bool = True
    ready_only: bool = True  # a Value target multiplies by ready pods only
    averaged: Bucket | None = None  # pods of this bucket count as the average of the others


ACTUAL = Variation()
