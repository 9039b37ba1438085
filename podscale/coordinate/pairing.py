"""Which VPA sizes the pods that an HPA counts, and why none does. Pure.

Only CPU is coordinated: memory does not fall again when there are more pods.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import JsonDecoder
from podscale.kube.objects.autoscaler import CrossVersionObjectReference

CONDITION = "Coordinated"  # of the HPA that acts; the recommender goes by it
_ACTING = ("Recreate", "InPlaceOrRecreate", "InPlace", "Auto")


class _UpdatePolicy(Struct, frozen=True, rename="camel"):
    update_mode: str | None = None


class _ContainerPolicy(Struct, frozen=True, rename="camel"):
    container_name: str = ""
    mode: str | None = None
    controlled_resources: tuple[str, ...] | None = None

    @property
    def sizes_cpu(self) -> bool:
        controlled = self.controlled_resources
        return self.mode != "Off" and (controlled is None or "cpu" in controlled)


class _ResourcePolicy(Struct, frozen=True, rename="camel"):
    container_policies: tuple[_ContainerPolicy, ...] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    target_ref: CrossVersionObjectReference | None = None
    update_policy: _UpdatePolicy | None = None
    resource_policy: _ResourcePolicy | None = None


class VpaSide(Struct, frozen=True):
    """What a VPA says of itself."""

    name: str
    target: CrossVersionObjectReference
    mode: str
    policies: tuple[_ContainerPolicy, ...]

    def sizes_cpu(self, container: str) -> bool:
        """Return whether it sizes the CPU of a container; of any, for ""."""
        others = [each for each in self.policies if each.container_name == "*"]
        named = [each for each in self.policies if each.container_name == container]
        found = (named or others)[:1]
        if container or not self.policies:
            return not found or found[0].sizes_cpu
        return not others or any(each.sizes_cpu for each in self.policies)


class Pairing(Struct, frozen=True):
    """The VPA of an HPA; or, without one, the reason and what is said of it."""

    reason: str  # NoUtilizationTarget | NoVpa | TwoVpas | VpaOff | CpuNotSized | Paired
    text: str
    vpa: VpaSide | None = None


_DECODER = JsonDecoder(_Spec)


def vpa_side(name: str, spec: bytes | msgspec.Raw) -> VpaSide | None:
    """Return what the VPA says; None where it cannot be read, or names no target."""
    try:
        found = _DECODER.decode(spec)
    except msgspec.DecodeError:
        return None
    if found.target_ref is None:
        return None
    mode = (found.update_policy.update_mode if found.update_policy else None) or "Recreate"
    policies = (found.resource_policy.container_policies if found.resource_policy else None) or ()
    return VpaSide(name, found.target_ref, mode, policies)


def pair(container: str | None, vpas: Sequence[VpaSide]) -> Pairing:
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
        names = " and ".join(sorted(each.name for each in vpas)[:2])
        return Pairing("TwoVpas", f"{len(vpas)} VPAs have this target ({names}), and one may")
    (vpa,) = vpas
    if vpa.mode not in _ACTING:
        return Pairing("VpaOff", f"VPA {vpa.name} has update mode {vpa.mode} and resizes no pod")
    if not vpa.sizes_cpu(container):
        of = f"of container {container}" if container else "of any container"
        return Pairing("CpuNotSized", f"VPA {vpa.name} does not size the CPU {of}")
    return Pairing("Paired", f"VPA {vpa.name} sizes the same CPU", vpa)
