"""What each update mode does with a decision, and what follows a refused patch."""

from typing import Literal

from msgspec import Struct

from vpa.updater.resize import InPlace

Action = Literal["evict", "resize", "none"]


class Move(Struct, frozen=True):
    """What to do with one pod that passed the update filter."""

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


def move(mode: str, decision: InPlace, *, may_evict: bool, in_place_gate: bool) -> Move:
    """Return what to do with a pod that is due.

    A deferred pod waits in both in-place modes: upstream patches it in mode InPlace all
    the same, pending pods and exhausted budgets included, and says so every loop (D4).
    What ``decide`` revises is a resize whose size is no longer the wanted one.
    """
    if not updates(mode, in_place_gate=in_place_gate):
        return Move("none")
    if not wants_in_place(mode, in_place_gate=in_place_gate):
        return Move("evict" if may_evict else "none")
    if decision == "InPlaceApproved":
        return Move("resize")
    if decision == "InPlaceInfeasible" and mode == "InPlace":
        return Move("resize", record_infeasible=True)
    if decision == "InPlaceEvict" and mode == "InPlaceOrRecreate":
        return Move("evict" if may_evict else "none")
    return Move("none")


def after_refused_resize(mode: str, *, may_evict: bool, node_capacity: bool) -> Move:
    """Return what follows a resize that the API server refused.

    ``node_capacity``: a 403 whose cause says that no room on the node will ever do.
    """
    if mode == "InPlace":
        return Move("none", record_infeasible=node_capacity)
    return Move("evict" if may_evict else "none")
