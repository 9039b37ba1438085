"""How far a store may be believed: synced once, and current now.

"While a watch is silent past its time-out or listing again, nothing that depends on it
shrinks": callers ask ``is_current`` before they shrink anything.
"""

from msgspec import Struct


class Freshness(Struct, frozen=True):
    """Facts about one store at one moment."""

    is_synced: bool  # the first list has been read whole, in every scope
    is_current: bool  # and every scope has a live watch now (or a recent list, if polling)
    silent_s: float  # since the scope that was quiet longest was last heard of; inf: never
    is_polling: bool = False  # some scope may not be watched and is listed instead
    reason: str = ""  # why it is not current; "" when it is
