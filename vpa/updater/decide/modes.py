"""Which modes change running pods, and how; and what follows a refused resize."""

from typing import Literal

from msgspec import Struct

Action = Literal["evict", "resize", "none"]


class UpdateMethod(Struct, frozen=True):
    """What to do with one pod now."""

    action: Action
    record_infeasible: bool = False  # remember the size as one that the node cannot give


def updates(mode: str, *, in_place_gate: bool) -> bool:
    """Return whether the mode changes running pods at all."""
    if mode == "InPlace":
        return in_place_gate
    return mode in ("Recreate", "Auto", "InPlaceOrRecreate")


def wants_in_place(mode: str, *, in_place_gate: bool) -> bool:
    """Return whether the mode resizes before it evicts, if it evicts at all."""
    return mode == "InPlaceOrRecreate" or (mode == "InPlace" and in_place_gate)


def after_refused_resize(mode: str, *, may_evict: bool, node_capacity: bool) -> UpdateMethod:
    """Return what follows a resize that the API server refused.

    ``node_capacity``: a 403 whose cause says that no room on the node will ever do.
    """
    if mode == "InPlace":
        return UpdateMethod("none", record_infeasible=node_capacity)
    return UpdateMethod("evict" if may_evict else "none")
