"""Whether admission lives: an evicted pod would come back unchanged without it."""

from msgspec import Struct


class AdmissionLease(Struct, frozen=True):
    """The Lease that the admission webhook renews; unix seconds, None: never."""

    name: str
    created_s: float | None
    renewed_s: float | None

    @property
    def was_read(self) -> bool:
        """Whether there is one that could be read; every object was made some time."""
        return self.created_s is not None or self.renewed_s is not None

    def age_s(self, now: float) -> float:
        """Return seconds since the last sign of life; infinite if there is none."""
        signs = [sign for sign in (self.created_s, self.renewed_s) if sign is not None]
        return now - max(signs) if signs else float("inf")

    def is_alive(self, now: float, timeout_s: float) -> bool:
        """Return whether the Lease was made or renewed less than the timeout ago."""
        return self.age_s(now) < timeout_s
