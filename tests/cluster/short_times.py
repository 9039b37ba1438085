"""``podscale`` whose certificates live, windows end and checkpoints wait for seconds.

Only how long something lasts is shortened; what is read, decided and written is the product's.
"""

from functools import partial

from msgspec import structs

from podscale.cli.entry import main
from podscale.nodes import part
from podscale.nodes.decide.ballast import BallastSettings
from podscale.process import apiservices
from podscale.serving.certificates.issuing import AuthorityTimes
from vpa.model.checkpoint_selection import SaveBand
from vpa.recommender import flags

_TIMES = AuthorityTimes(life_s=45.0, overlap_s=2.25, leaf_life_s=9.0, poll_s=1.125)
_BALLAST = BallastSettings(window_s=3.0, write_interval_s=1.0)


def shorten() -> None:
    """Have ``podscale``, in this process, last as briefly."""
    apiservices.keeper_behind = partial(apiservices.keeper_behind, times=_TIMES)
    part.kind = partial(part.kind, _BALLAST)
    options = flags.options
    flags.options = lambda parsed: structs.replace(options(parsed), save_band=SaveBand(0.0))


if __name__ == "__main__":
    shorten()
    main()
