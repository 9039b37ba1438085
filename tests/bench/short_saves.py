"""``podscale`` whose checkpoints wait for 120 s: the share of an hour that the bench's loop of 2 s
is of a minute."""

from msgspec import structs

from podscale.cli.entry import main
from vpa.model.checkpoint_selection import SaveBand
from vpa.recommender import flags

if __name__ == "__main__":
    options = flags.options
    flags.options = lambda parsed: structs.replace(options(parsed), save_band=SaveBand(age_s=120.0))
    main()
