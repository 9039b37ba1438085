"""What the flags of the nodes part come to."""

from typing import Literal

from msgspec import Struct

from podscale.core.selectors.selector import EVERYTHING, Selector
from podscale.kube.leadership.leading import LeaseChoice
from podscale.nodes.decide.ballast import BallastSettings
from podscale.nodes.headroom.keeper import HeadroomChoice
from podscale.nodes.room.plan import RoomChoice

Mode = Literal["shadow", "ballast", "extender", "taint"]


class NodesChoice(Struct, frozen=True):
    """How nodes are looked at, and whether anything is written."""

    mode: Mode = "shadow"
    ballast: BallastSettings = BallastSettings()
    interval_s: float = 15.0  # between two rounds over all nodes
    timeout_s: float = 10.0  # of one batch of metrics
    namespace: str = "podscale-ballast"
    selector: Selector = EVERYTHING  # of nodes
    room: RoomChoice | None = None  # None: none is made for resizes
    headroom: HeadroomChoice | None = None  # None: none is kept
    lease: LeaseChoice | None = None
