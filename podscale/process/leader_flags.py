"""The flags of leader election, as every part has them that acts in one process only."""

from podscale.kube.leadership.leading import LeaseChoice, identity
from podscale.kube.leadership.lease import LeaseTimes
from podscale.serving.flags import Flag, Flags


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


def problems(flags: Flags) -> list[str]:
    """Return what makes them invalid."""
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
