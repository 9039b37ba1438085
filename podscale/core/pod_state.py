"""What a pod's status says, as numbers: pods are kept in columns."""

from enum import IntEnum


class PodPhase(IntEnum):
    UNKNOWN = 0
    PENDING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4

    @property
    def text(self) -> str:
        """As Kubernetes writes it."""
        return self.name.capitalize()


class PodReadiness(IntEnum):
    """The Ready condition; ABSENT: the pod has no such condition."""

    ABSENT = 0
    TRUE = 1
    FALSE = 2
    UNKNOWN = 3
