"""Who refuses a pod, in the scheduler's words."""

from msgspec import Struct


class NodeRefusal(Struct, frozen=True):
    """Why one node cannot take the pod."""

    plugin: str  # the scheduler's name: NodeResourcesFit
    messages: tuple[str, ...]  # the scheduler's words; several resources may lack
    detail: str = ""  # in numbers, for a person
    lack: float = 0.0  # of resources: the largest share of what is wanted that is not free
    is_by_load: bool = False  # it is podscale's ballast or taint alone


class PodRefusal(Struct, frozen=True):
    """Why no node is even looked at."""

    plugin: str
    message: str
