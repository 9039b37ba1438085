"""Out-of-memory kills, as the model records them."""

from datetime import datetime

from msgspec import Struct


class Oom(Struct, frozen=True):
    """One kill; ``memory_bytes`` is the request, or the usage that the kubelet reports."""

    namespace: str
    pod: str
    container: str
    memory_bytes: int
    time: datetime
    source: str = ""  # where the request was read, in upstream's words; empty: nowhere
