"""The flags of the upstream VPA's programs, and which of them say nothing to ours.

From the flags of autoscaler/vertical-pod-autoscaler (vpa.md 2.11, 3.8, 4.6). The text is
why a flag has no effect; empty where it means what it meant.
"""

from collections.abc import Mapping

Known = Mapping[str, str]

_EXTERNAL = "usage comes from the feed or from metrics.k8s.io (--metrics-source)"


def _names(text: str, why: str = "") -> dict[str, str]:
    return dict.fromkeys(text.split(), why)


_COMMON: Known = {
    **_names(
        "address kube-api-qps kube-api-burst kubeconfig vpa-object-namespace "
        "ignored-vpa-object-namespaces"
    ),
    **_names("profiling", "there is no profiler behind the metrics port"),
    **_names("feature-gates"),
}

# Of the two that act; the webhook has no leader.
_LEADING: Known = {
    **_COMMON,
    **_names(
        "leader-elect leader-elect-lease-duration leader-elect-renew-deadline "
        "leader-elect-retry-period leader-elect-resource-name leader-elect-resource-namespace"
    ),
    **_names("leader-elect-resource-lock", "it is always a Lease"),
}

RECOMMENDER: Known = {
    **_LEADING,
    **_names(
        "recommender-name recommender-interval update-worker-count storage checkpoints-timeout "
        "checkpoints-gc-interval memory-saver target-cpu-percentile target-memory-percentile "
        "recommendation-lower-bound-cpu-percentile recommendation-lower-bound-memory-percentile "
        "recommendation-upper-bound-cpu-percentile recommendation-upper-bound-memory-percentile "
        "recommendation-margin-fraction confidence-interval-cpu confidence-interval-memory "
        "pod-recommendation-min-cpu-millicores pod-recommendation-min-memory-mb "
        "container-recommendation-max-allowed-cpu container-recommendation-max-allowed-memory "
        "round-cpu-millicores round-memory-bytes humanize-memory "
        "cpu-integer-post-processor-enabled memory-aggregation-interval "
        "memory-aggregation-interval-count memory-histogram-decay-half-life "
        "cpu-histogram-decay-half-life oom-bump-up-ratio oom-min-bump-up-bytes"
    ),
    **_names("min-checkpoints", "upstream has deprecated it"),
    **_names(
        "prometheus-address prometheus-insecure "
        "prometheus-cadvisor-job-name prometheus-bearer-token prometheus-bearer-token-file "
        "username password history-length history-resolution history-cpu-metric "
        "history-memory-metric pod-label-prefix metric-for-pod-labels pod-namespace-label "
        "pod-name-label container-namespace-label container-pod-name-label container-name-label"
    ),
    **_names("prometheus-query-timeout", "history has a deadline per slice of time"),
    **_names(
        "use-external-metrics external-metrics-cpu-metric external-metrics-memory-metric",
        _EXTERNAL,
    ),
}

UPDATER: Known = {
    **_LEADING,
    **_names(
        "updater-interval min-replicas eviction-tolerance eviction-rate-limit "
        "eviction-rate-burst in-place-skip-disruption-budget pod-update-threshold "
        "in-recommendation-bounds-eviction-lifetime-threshold evict-after-oom-threshold "
        "use-admission-controller-status admission-controller-status-lease-name "
        "admission-controller-status-lease-namespace admission-controller-status-lease-timeout"
    ),
    **_names("concurrent-cpu-startup-boost-syncs", "boosts are taken back within the loop"),
}

ADMISSION: Known = {
    **_COMMON,
    **_names(
        "port register-webhook register-by-url webhook-address webhook-port webhook-service "
        "webhook-timeout-seconds webhook-labels webhook-failure-policy-fail client-ca-file "
        "tls-cert-file tls-private-key reload-cert min-tls-version tls-ciphers "
        "status-lease-name status-lease-namespace status-lease-update-interval "
        "max-allowed-cpu-boost"
    ),
}
