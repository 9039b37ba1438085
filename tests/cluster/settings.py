"""What can be chosen when a plane is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tools.programs import OLDER, release

# Off by default before 1.37.
SCALE_TO_ZERO = {"HPAScaleToZero": True} if release() == OLDER else {}


@dataclass(frozen=True)
class PlaneSettings:
    """The defaults are a plane on which nobody but us acts on HorizontalPodAutoscalers."""

    nodes: int = 3
    node_cpu: str = "64"
    node_memory: str = "256Gi"
    node_pods: int = 1000
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    # Rules of audit.k8s.io/v1 Policy, first match decides; what matches none is not logged.
    audit: Sequence[Mapping[str, Any]] = ()
    kwok_stages: str = ""  # YAML documents of kind Stage; kwok's own where none is given
    etcd_args: Sequence[str] = ()
    apiserver_args: Sequence[str] = ()
    controller_manager_args: Sequence[str] = ()
    scheduler_args: Sequence[str] = ()

    def audit_policy(self) -> dict[str, Any]:
        return {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [*self.audit, {"level": "None"}],
        }


def audited(*resources: str, verbs: Sequence[str] = ()) -> dict[str, Any]:
    """Return a rule that logs request and response of ``resource`` or ``resource.group`` names.

    Subresources are named as in RBAC: ``deployments/scale.apps``, ``pods/*``.
    """
    groups: dict[str, list[str]] = {}
    for name in resources:
        resource, _, group = name.partition(".")
        groups.setdefault(group, []).append(resource)
    rule: dict[str, Any] = {
        "level": "RequestResponse",
        "resources": [{"group": group, "resources": names} for group, names in groups.items()],
    }
    if verbs:
        rule["verbs"] = list(verbs)
    return rule
