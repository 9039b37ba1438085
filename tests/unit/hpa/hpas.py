"""HPAs as decisions read them, for tests of what surrounds decisions."""

from msgspec import structs

from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import HPA, Behavior, HpaStatus, MetricSpec
from podscale.kube.objects.autoscaler import CrossVersionObjectReference

PLAIN_HPA = HPA(
    "shop",
    "web",
    CrossVersionObjectReference("Deployment", "web", "apps/v1"),
    10,
    (
        MetricSpec("Pods", "load", target_type="AverageValue", average_value_milli=1000),
        MetricSpec("Resource", "cpu", target_type="Utilization", average_utilization=50),
    ),
)
BEHAVIOR_HPA = structs.replace(PLAIN_HPA, behavior=Behavior(UP, DOWN))


def with_status(hpa: HPA, *, current: int, desired: int, last_scale_s: float | None = None) -> HPA:
    status = HpaStatus(current, desired, last_scale_s)
    return structs.replace(hpa, status=status)
