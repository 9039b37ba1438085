"""Which VPA sizes the pods that an HPA counts, and why none does. Pure.

Only CPU is coordinated: memory does not fall again when there are more pods.
"""

from collections.abc import Sequence

from msgspec import Struct

from podscale.kube.objects.vpa import (
    ResourcePolicy,
    Vpa,
    container_policies,
    container_policy,
    update_mode,
)

CONDITION = "Coordinated"  # of the HPA that acts; the recommender goes by it
_ACTING = ("Recreate", "InPlaceOrRecreate", "InPlace", "Auto")


class Pairing(Struct, frozen=True):
    """The VPA of an HPA; or, without one, the reason and what is said of it."""

    reason: str  # NoUtilizationTarget | NoVpa | TwoVpas | VpaOff | CpuNotSized | Paired
    text: str
    vpa: Vpa | None = None


def pair(container: str | None, vpas: Sequence[Vpa]) -> Pairing:
    """Return which of the VPAs of one target sizes what an HPA counts: the CPU of a container, or
    of the whole pod (""); None: it has no utilization target of CPU."""
    if container is None:
        return Pairing(
            "NoUtilizationTarget",
            "no metric is a utilization of CPU, so that nothing has an anchor",
        )
    if not vpas:
        return Pairing("NoVpa", "no VPA has this target")
    if len(vpas) > 1:
        names = " and ".join(sorted(each.metadata.name for each in vpas)[:2])
        return Pairing("TwoVpas", f"{len(vpas)} VPAs have this target ({names}), and one may")
    (vpa,) = vpas
    name, mode = vpa.metadata.name, update_mode(vpa)
    if mode not in _ACTING:
        return Pairing("VpaOff", f"VPA {name} has update mode {mode} and resizes no pod")
    if not _sizes_cpu(vpa.spec.resource_policy, container):
        of = f"of container {container}" if container else "of any container"
        return Pairing("CpuNotSized", f"VPA {name} does not size the CPU {of}")
    return Pairing("Paired", f"VPA {name} sizes the same CPU", vpa)


def _sizes_cpu(policy: ResourcePolicy | None, container: str) -> bool:
    # Of one container; of any, for "".
    if container or policy is None or "*" not in policy.by_container:
        found = container_policy(policy, container)
        return found is None or found.sizes("cpu")
    return any(each.sizes("cpu") for each in container_policies(policy))
