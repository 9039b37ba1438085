"""What our programs say to the arguments of those that they stand in for, by their own tables."""

from collections.abc import Mapping, Sequence

from adapter.flags import TABLE as ADAPTER
from hpa.flags import TABLE as HPA
from podscale.serving.flags import Flag, FlagError, parse, row_of
from vpa.admission.flags import TABLE as ADMISSION
from vpa.recommender.flags import TABLE as RECOMMENDER
from vpa.updater.flags import TABLE as UPDATER

_TABLES: Mapping[str, Sequence[Flag]] = {
    "adapter": ADAPTER,
    "admission-controller": ADMISSION,
    "hpa": HPA,
    "recommender": RECOMMENDER,
    "updater": UPDATER,
}


def refusal(program: str, flag: str, value: str | None) -> str:
    """Return why a program of ours refuses a flag or its value, "" where it does not. Without a
    value (None) only the flag is looked at."""
    if value is None and _row(program, flag) is not None:
        return ""
    try:
        parse([f"--{flag}={value or ''}"], _TABLES[program])
    except FlagError as error:
        return str(error)
    return ""


def idle(program: str, flag: str) -> str:
    """Return why a flag that a program takes has no effect; empty where it has one."""
    row = _row(program, flag)
    return row.ignored if row is not None else ""


def _row(program: str, flag: str) -> Flag | None:
    return row_of(flag, {each.name: each for each in _TABLES[program]})
