"""What the command lines of parts have in common: leader election, and one line for several.

``--flag`` is for all parts that know it, ``--part.flag`` for one. The parts' own tables are
unchanged; ``split`` gives each the values that concern it.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from podscale.kube.leadership.leading import LeaseChoice, identity
from podscale.kube.leadership.lease import LeaseTimes
from podscale.serving.flags import Flag, Flags, Value

Tables = Mapping[str, Sequence[Flag]]

# What two parts of one process cannot share: only ``--part.flag`` reaches any but the first that
# knows it.
_OF_ONE = frozenset(
    {
        "client-ca-file",
        "leader-elect-resource-name",
        "port",
        "service",
        "tls-cert-file",
        "tls-private-key",
    }
)


def merged(tables: Tables) -> tuple[Flag, ...]:
    """Return the table that reads all parts' flags; the first part's word for a flag counts."""
    plain: dict[str, Flag] = {}
    for table in tables.values():
        # Within a table the last of a name counts, as in ``flags.parse``.
        for name, flag in {flag.name: flag for flag in table}.items():
            plain.setdefault(name, flag)
    own = (
        structs.replace(flag, name=f"{part}.{flag.name}", shorthand="", is_listed=False)
        for part, table in tables.items()
        for flag in table
    )
    return (*plain.values(), *own)


def split(
    parsed: Flags, tables: Tables, defaults: Mapping[str, Value] | None = None
) -> dict[str, Flags]:
    """Return each part's flags. ``defaults`` stand for those of the parts that know them."""
    found = {}
    first: dict[str, str] = {}  # flag -> the first part that knows it
    for part, table in tables.items():
        for flag in table:
            first.setdefault(flag.name, part)
    for part, table in tables.items():
        values: dict[str, Value] = {flag.name: flag.default for flag in table}
        values |= {name: value for name, value in (defaults or {}).items() if name in values}
        given = set()
        for name in tuple(values):
            own = f"{part}.{name}"
            if own in parsed.given:
                values[name] = parsed.values[own]
            elif name in parsed.given and (name not in _OF_ONE or first[name] == part):
                values[name] = parsed.values[name]
            else:
                continue
            given.add(name)
        found[part] = Flags(values, frozenset(given), (), ())
    return found


def leader_election(
    lease: str, *, is_on: bool = True, namespace: str = "", where: str = "Namespace of the Lease."
) -> tuple[Flag, ...]:
    """Return the flags of a Lease called ``lease``; ``where`` is the help on its namespace."""
    return (
        Flag("leader-elect", "bool", is_on, "Act only while holding the Lease."),
        Flag("leader-elect-lease-duration", "duration", 15.0,
             "How long others wait after the last renewal."),
        Flag("leader-elect-renew-deadline", "duration", 10.0,
             "How long after its last renewal a leader still writes."),
        Flag("leader-elect-retry-period", "duration", 2.0, "Between two attempts."),
        Flag("leader-elect-resource-name", default=lease, help="Name of the Lease."),
        Flag("leader-elect-resource-namespace", default=namespace, help=where),
        Flag("leader-elect-resource-lock", default="leases", ignored="it is always a Lease"),
    )  # fmt: skip


def lease_problems(flags: Flags) -> list[str]:
    """Return what makes the flags of leader election invalid."""
    try:
        _times(flags)
    except ValueError as error:
        return [f"--leader-elect-*: {error}"]
    return []


def lease_of(flags: Flags, own_namespace: str = "") -> LeaseChoice:
    """Return the Lease, in ``own_namespace`` where no other is named."""
    return LeaseChoice(
        flags.text("leader-elect-resource-namespace") or own_namespace,
        flags.text("leader-elect-resource-name"),
        identity(),
        _times(flags),
    )


def _times(flags: Flags) -> LeaseTimes:
    return LeaseTimes(
        flags.seconds("leader-elect-lease-duration"),
        flags.seconds("leader-elect-renew-deadline"),
        flags.seconds("leader-elect-retry-period"),
    )
