"""Which VPA sizes the pods that an HPA counts, and why none does. Pure.

Only CPU is coordinated: memory does not fall again when there are more pods.
"""

from collections.abc import Sequence

from msgspec import Struct

from podscale.kube.objects import vpa as objects

CONDITION = "Coordinated"  # of the HPA that acts; the recommender goes by it
_ACTING = ("Recreate", "InPlaceOrRecreate", "InPlace", "Auto")


class Pairing(Struct, frozen=True):
    """The VPA of an HPA; or, without one, the reason and what is said of it."""

    reason: str  # NoUtilizationTarget | NoVpa | TwoVpas | VpaOff | CpuNotSized | Paired
    text: str
    vpa: objects.Vpa | None = None


def pair(container: str | None, vpas: Sequence[objects.Vpa]) -> Pairing:
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
    name, mode = vpa.metadata.name, objects.update_mode(vpa)
    if mode not in _ACTING:
        return Pairing("VpaOff", f"VPA {name} has update mode {mode} and resizes no pod")
    if not _sizes_cpu(vpa.spec.resource_policy, container):
        of = f"of container {container}" if container else "of any container"
        return Pairing("CpuNotSized", f"VPA {name} does not size the CPU {of}")
    return Pairing("Paired", f"VPA {name} also sets this CPU request", vpa)


def _sizes_cpu(policy: objects.ResourcePolicy | None, container: str) -> bool:
    # Of one container; of any, for "".
    if container or policy is None or "*" not in policy.by_container:
        found = objects.container_policy(policy, container)
        return found is None or found.sizes("cpu")
    return any(each.sizes("cpu") for each in objects.container_policies(policy))


_BAND = 0.1  # of the limit, in which the HPA's tolerance keeps it


def drift(percent: int, used: int | None, sized: int | None) -> str:
    """Return a clause on where an HPA at ``percent`` of requests ends beside a VPA that gives pods
    ``sized``, of which one uses ``used`` on average; None: not known.

    The VPA gives 1.15 times the 90th percentile, so that utilization comes to
    ``used / sized`` whatever there is of pods, and the HPA never reaches another target.
    """
    if not used or not sized:
        return (
            f"together they drift to many small pods where {percent} % is below "
            "mean(u) / (1.15 · p90(u)) of the usage u of a pod, and to few large ones above"
        )
    limit = 100.0 * used / sized
    share = f"a pod uses {used}m on average, {limit:.0f} % of the {sized}m that the VPA gives it"
    if abs(percent - limit) <= _BAND * limit:
        return f"{share}, which the target of {percent} % is near: they drift slowly, if at all"
    where = "many small pods" if percent < limit else "few large pods"
    return f"{share}, and the target is {percent} %: together they drift to {where}"
