"""What to ask Prometheus for a whole cluster, by the names of kube-prometheus. Pure."""

from msgspec import Struct

from podscale.core.goquote import quote


class FleetNames(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Names of metrics and labels, as kube-prometheus has them; YAML in camel case."""

    cpu: str = "container_cpu_usage_seconds_total"
    memory: str = "container_memory_working_set_bytes"
    throttled: str = "container_cpu_cfs_throttled_periods_total"
    periods: str = "container_cpu_cfs_periods_total"
    oom_events: str = "container_oom_events_total"
    namespace: str = "namespace"  # labels of cAdvisor's series
    pod: str = "pod"
    container: str = "container"
    cadvisor: str = ""  # further matchers, as job="kubelet"
    rate_window: str = ""  # of CPU; empty: a step, which needs two samples in it
    requests: str = "kube_pod_container_resource_requests"
    limits: str = "kube_pod_container_resource_limits"
    pod_owner: str = "kube_pod_owner"
    replicaset_owner: str = "kube_replicaset_owner"
    job_owner: str = "kube_job_owner"
    terminated: str = "kube_pod_container_status_last_terminated_reason"
    hpa: str = "kube_horizontalpodautoscaler_info"
    hpa_condition: str = "kube_horizontalpodautoscaler_status_condition"
    allocatable: str = "kube_node_status_allocatable"
    limit_range: str = "kube_limitrange"
    kube_state_metrics: str = ""  # further matchers


class FleetQueries:
    """The queries of one report; ``only`` is a namespace, or empty."""

    def __init__(self, names: FleetNames, only: str, step_s: int) -> None:
        self.names = names
        self._only = only
        self._step = f"{step_s}s"

    @property
    def cpu(self) -> str:
        """Cores by container, in whole micro-cores: more digits would be half of the answer."""
        window = self.names.rate_window or self._step
        cores = self._by("sum", f"rate({self._cadvisor(self.names.cpu)}[{window}])")
        return f"round({cores}, 1e-6)"

    @property
    def memory(self) -> str:
        """The peak of bytes in each step, by container."""
        return self._by("max", f"max_over_time({self._cadvisor(self.names.memory)}[{self._step}])")

    @property
    def running(self) -> str:
        """Containers that run at the moment asked for."""
        return self._by("group", self._cadvisor(self.names.memory))

    @property
    def throttled(self) -> str:
        """The share of a day's CPU periods that were throttled, by container."""
        throttled, periods = (
            self._by("sum", f"increase({self._cadvisor(each)}[1d])")
            for each in (self.names.throttled, self.names.periods)
        )
        return f"{throttled} / {periods}"

    @property
    def oom_events(self) -> str:
        """A day's kills by container, as cAdvisor counts them."""
        return self._by("sum", f"increase({self._cadvisor(self.names.oom_events)}[1d])") + " > 0"

    def requests(self, metric: str) -> str:
        """Return the query of requests or limits: cores and bytes by container."""
        return f"max by (namespace, pod, container, resource) ({self._ksm(metric, _BOTH)})"

    def owners(self, metric: str, name: str) -> str:
        """Return the query of owners; ``name`` is the label of what is owned."""
        return f"group by (namespace, {name}, owner_kind, owner_name) ({self._ksm(metric)})"

    @property
    def terminated(self) -> str:
        """Containers whose last end was a kill for memory."""
        which = self._ksm(self.names.terminated, 'reason="OOMKilled"')
        return f"max by (namespace, pod, container) (max_over_time({which}[1d])) > 0"

    @property
    def hpas(self) -> str:
        """Targets of HPAs: 1 where it scales."""
        keys = "namespace, horizontalpodautoscaler"
        info = self._ksm(self.names.hpa)
        active = self._ksm(self.names.hpa_condition, 'condition="ScalingActive",status="true"')
        return (
            f"max by ({keys}, scaletargetref_kind, scaletargetref_name) ({info}) "
            f"* on ({keys}) group_left max by ({keys}) ({active})"
        )

    @property
    def allocatable(self) -> str:
        """CPU and memory of each node."""
        return f"max by (node, resource) ({self._ksm(self.names.allocatable, _BOTH, True)})"

    @property
    def limit_ranges(self) -> str:
        """Bounds of containers and pods, the tightest of each namespace."""
        keys = "namespace, type, resource, constraint"
        ours = self._ksm(self.names.limit_range, f'{_BOTH},constraint=~"%s"')
        return (
            f"max by ({keys}) ({ours % 'min'}) or min by ({keys}) ({ours % 'max'}) "
            f"or max by ({keys}) ({ours % 'default'})"
        )

    def _by(self, how: str, inner: str) -> str:
        names = self.names
        return f"{how} by ({names.namespace}, {names.pod}, {names.container}) ({inner})"

    def _cadvisor(self, metric: str) -> str:
        names = self.names
        # Sandboxes and cgroups of whole pods are no containers.
        found = [f'{names.pod}!=""', f'{names.container}!=""', f'{names.container}!="POD"']
        if self._only:
            found.append(f"{names.namespace}={quote(self._only)}")
        return _selected(metric, [*found, names.cadvisor])

    def _ksm(self, metric: str, matchers: str = "", is_of_cluster: bool = False) -> str:
        of = f"namespace={quote(self._only)}" if self._only and not is_of_cluster else ""
        return _selected(metric, [matchers, of, self.names.kube_state_metrics])


_BOTH = 'resource=~"cpu|memory"'


def _selected(metric: str, matchers: list[str]) -> str:
    return f"{metric}{{{','.join(each for each in matchers if each)}}}"
