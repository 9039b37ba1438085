"""Which things the API server serves, and under which paths.

``Resource`` is what discovery says about one of them; the constants are those whose
group and version Kubernetes has promised not to change.
"""

from urllib.parse import quote

from msgspec import Struct


class Resource(Struct, frozen=True):
    """One served resource of one version."""

    group: str  # "" for core
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""  # discovery's singularName, else the lower-cased kind
    verbs: frozenset[str] = frozenset()  # empty: not known
    has_scale: bool = False
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``apps/v1``, ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """``deployments.apps``, ``pods``: the form metrics names use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the escaped path; without ``name`` that of the list, without ``namespace``
        that of all namespaces."""
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod", singular="pod")
NODES = Resource("", "v1", "nodes", "Node", False, "node")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, "namespace")
EVENTS = Resource("", "v1", "events", "Event", singular="event")
SECRETS = Resource("", "v1", "secrets", "Secret", singular="secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", singular="configmap")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", singular="limitrange")
SERVICES = Resource("", "v1", "services", "Service", singular="service")
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True,
    "replicationcontroller", has_scale=True,
)  # fmt: skip
DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", True, "deployment", has_scale=True
)
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", True, "replicaset", has_scale=True
)
STATEFUL_SETS = Resource(
    "apps", "v1", "statefulsets", "StatefulSet", True, "statefulset", has_scale=True
)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", singular="daemonset")
JOBS = Resource("batch", "v1", "jobs", "Job", singular="job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", singular="cronjob")
HPAS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True,
    "horizontalpodautoscaler",
)  # fmt: skip
PODAUTOSCALERS = Resource(
    "autoscaling.podscale.io", "v1", "podautoscalers", "PodAutoscaler", True, "podautoscaler"
)
VPAS = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True,
    "verticalpodautoscaler",
)  # fmt: skip
VPA_CHECKPOINTS = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalercheckpoints",
    "VerticalPodAutoscalerCheckpoint", True, "verticalpodautoscalercheckpoint",
)  # fmt: skip
PDBS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, "poddisruptionbudget"
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", singular="lease")
API_SERVICES = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", False, "apiservice"
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration", False, "mutatingwebhookconfiguration",
)  # fmt: skip
