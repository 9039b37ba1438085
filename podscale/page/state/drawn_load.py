"""What *What if* gives to ``podscale replay``: the load that the page drew, and the spec. Pure.

The page knows the load as a share of its target, whatever the metric is. Times the size of then
it is the load in pods at today's target: one metric whose target is 1.
"""

from collections.abc import Mapping

import numpy as np

from hpa.decide.api.spec import HPA, Rules
from podscale.page.state.point_ring import PointRing

SWEEP = "target=600m..1400m:100m"  # of today's
FEWEST_S = 120.0  # of load, until there is something to replay
MOST_PASSES = 5760  # the last ones, a day at 15 s: the ring keeps its first point for ever


def trace(ring: PointRing, most: int, period_s: float) -> tuple[str, int] | None:
    """Return the load as CSV, a line for each period, and the replicas at its beginning; None: it
    has not been watched for long.

    Older points lie further apart, and hold until the next one. At ``most`` pods the load is
    hidden, and left out.
    """
    times = ring.times()
    if len(times) < 2 or times[-1] - times[0] < FEWEST_S:
        return None
    load, target, replicas = ring.columns()
    with np.errstate(divide="ignore", invalid="ignore"):
        pods = load / target * replicas
    pods[(replicas >= most) & (load > target)] = np.nan
    start = max(times[0], times[-1] - (MOST_PASSES - 1) * period_s)
    grid = np.arange(start, times[-1] + period_s, period_s)
    rows = np.searchsorted(times, grid, side="right") - 1
    lines = [
        f"{at:.3f},{value:.6g}" if np.isfinite(value) else f"{at:.3f},"
        for at, value in zip(grid.tolist(), pods[rows].tolist(), strict=True)
    ]
    first = replicas[rows[0]]
    return "\n".join(["time,load", *lines, ""]), int(first) if first >= 1 else 1


def spec(hpa: HPA) -> Mapping[str, object]:
    """Return the object to replay: bounds and behavior of ``hpa``, one metric with target 1."""
    metric = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    target = hpa.target
    found: dict[str, object] = {
        "scaleTargetRef": {
            "apiVersion": target.api_version or "apps/v1", "kind": target.kind, "name": target.name,
        },
        "minReplicas": max(hpa.min_replicas, 1),
        "maxReplicas": hpa.max_replicas,
        "metrics": [{"type": "Pods", "pods": metric}],
    }  # fmt: skip
    if hpa.behavior is not None:
        found["behavior"] = {
            "scaleUp": _rules(hpa.behavior.up),
            "scaleDown": _rules(hpa.behavior.down),
        }
    metadata = {"name": hpa.name, "namespace": hpa.namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": metadata, "spec": found}  # fmt: skip


def _rules(rules: Rules) -> Mapping[str, object]:
    found: dict[str, object] = {
        "selectPolicy": rules.select,
        "policies": [
            {"type": each.type, "value": each.value, "periodSeconds": each.period_seconds}
            for each in rules.policies
        ],
    }
    if rules.window_s is not None:
        found["stabilizationWindowSeconds"] = rules.window_s
    if rules.tolerance is not None:
        found["tolerance"] = f"{rules.tolerance:g}"
    return found
