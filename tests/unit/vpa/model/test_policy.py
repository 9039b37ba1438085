"""What a container's policy comes to."""

from podscale.kube.objects.vpa import ContainerPolicy
from vpa.model.amounts import controlled_resources


def test_what_the_vpa_does_not_size_is_not_controlled():
    policy = ContainerPolicy(controlled_resources=("cpu", "nvidia.com/gpu"))
    assert controlled_resources(policy) == ("cpu",)
