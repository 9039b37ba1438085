"""Which things the API server serves, and under which paths.

``Resource`` is what discovery says about one of them; the constants are those whose
group and version Kubernetes has promised not to change.
"""

from urllib.parse import quote

from msgspec import Struct, field


class Resource(Struct, frozen=True):
    """One served resource of one version."""

    group: str  # "" for core
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    # Of discovery; under the name by which recordings of the doctor have it.
    singular_name: str = field(default="", name="singular")
    verbs: frozenset[str] = frozenset()  # empty: not known
    short_names: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """Discovery's name for one of them, else the lower-cased kind."""
        return self.singular_name or self.kind.lower()

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


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SERVICES = Resource("", "v1", "services", "Service")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
PODAUTOSCALERS = Resource("autoscaling.podscale.io", "v1", "podautoscalers", "PodAutoscaler")
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
VPA_CHECKPOINTS = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalercheckpoints",
    "VerticalPodAutoscalerCheckpoint",
)  # fmt: skip
PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration", False,
)  # fmt: skip
