"""Who refuses a pod, in the scheduler's words."""

from msgspec import Struct


class NodeRefusal(Struct, frozen=True):
    """Why one node cannot take the pod."""

    plugin: str  # the scheduler's name: NodeResourcesFit
    messages: tuple[str, ...]  # the scheduler's words; several resources may lack
    detail: str = ""  # in numbers, for a person


class PodRefusal(Struct, frozen=True):
    """Why no node is even looked at."""

    plugin: str
    message: str
