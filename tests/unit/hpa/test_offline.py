"""One decision from two files: every version is read, and findings are told before deciding."""

import pytest

from hpa.offline import OfflineError, decide_files

NOW = 1_750_000_000.0
V1 = """
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: MAX
  targetCPUUtilizationPercentage: 50
"""
OBSERVED = """
scale: {replicas: 2, selector: app=web}
pods:
- {name: web-0, requests: {app: {cpu: 1}}}
- {name: web-1, requests: {app: {cpu: 1}}}
metrics: [{pods: {web-0: 900m, web-1: 950m}, age: 10s}]
"""


def test_an_old_version_is_decided_on() -> None:
    body = decide_files(V1.replace("MAX", "10"), OBSERVED, release="1.37", now=NOW)
    assert body["status"]["replicas"] == 4
    assert body["status"]["first_reason"] == "MetricAboveTarget"


def test_what_the_server_would_refuse_is_refused() -> None:
    with pytest.raises(OfflineError, match=r"spec\.maxReplicas: Invalid value: 0"):
        decide_files(V1.replace("MAX", "0"), OBSERVED, release="1.37", now=NOW)


def test_another_kind_of_object_is_refused() -> None:
    with pytest.raises(OfflineError, match="apps/v1 is not a version"):
        decide_files("apiVersion: apps/v1", OBSERVED, release="1.37", now=NOW)
