"""``podscale`` with days of seconds: sizes move as seldom as they do, in a test's time.

Only how long something has to last is shortened; what is read, decided and written is the
product's.
"""

from podscale.cli.entry import main
from podscale.coordinate import sizes

HALF_DAY_S, QUIET_S, HOUR_S = 1.5, 2.0, 1.0

if __name__ == "__main__":
    sizes._HALF_DAY_S = HALF_DAY_S
    sizes._WEEK_S = 2 * HALF_DAY_S
    sizes.LEAST_QUIET_S = QUIET_S
    sizes._SLOT_S = HOUR_S
    sizes._LATEST_S = QUIET_S
    main()
