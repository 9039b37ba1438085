"""What ``migrate`` says of the VPA's flags is what the programs do with them.

The two tables stand in rooms that may not import each other; here they meet.
"""

from collections.abc import Mapping, Sequence

import pytest

from podscale.migrate import workloads
from podscale.serving.flags import Flag
from vpa.admission import flags as admission
from vpa.recommender import flags as recommender
from vpa.updater import flags as updater

PROGRAMS = [
    pytest.param(workloads.RECOMMENDER, recommender.TABLE, id="recommender"),
    pytest.param(workloads.UPDATER, updater.TABLE, id="updater"),
    pytest.param(workloads.ADMISSION, admission.TABLE, id="admission"),
]


@pytest.mark.parametrize(("told", "table"), PROGRAMS)
def test_every_flag_that_is_told_is_taken(told: Mapping[str, str], table: Sequence[Flag]) -> None:
    assert not told.keys() - {flag.name for flag in table}


@pytest.mark.parametrize(("told", "table"), PROGRAMS)
def test_flags_without_effect_are_those_that_are_told_to_have_none(
    told: Mapping[str, str], table: Sequence[Flag]
) -> None:
    ignored = {flag.name for flag in table if flag.ignored}
    assert {name for name, why in told.items() if why} == ignored & told.keys()


@pytest.mark.parametrize(
    ("told", "upstream"),
    [
        pytest.param(workloads.RECOMMENDER, recommender.UPSTREAM, id="recommender"),
        pytest.param(workloads.UPDATER, updater.UPSTREAM, id="updater"),
        pytest.param(workloads.ADMISSION, admission.UPSTREAM, id="admission"),
    ],
)
def test_every_flag_of_upstream_is_told(told: Mapping[str, str], upstream: Sequence[Flag]) -> None:
    assert not {flag.name for flag in upstream} - told.keys()
