"""Argument lists as upstream's own installations render them, and the rules beside them.

Facts from the Helm chart prometheus-adapter 5.x, kube-prometheus, prometheus-adapter's
deploy/manifests and the older manifests that are still in use (reference/adapter.md 6.2, 8).
"""

from collections.abc import Sequence

from msgspec import Struct

_SUITES = ",".join(
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384", "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
    )
)  # fmt: skip

RESOURCE_RULES = """\
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        irate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[4m])
      )
    nodeQuery: |
      sum by (<<.GroupBy>>) (irate(node_cpu_usage_seconds_total{<<.LabelMatchers>>}[4m]))
    resources:
      overrides:
        namespace: {resource: namespace}
        node: {resource: node}
        pod: {resource: pod}
  memory:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        container_memory_working_set_bytes{<<.LabelMatchers>>,container!="",pod!=""}
      )
    nodeQuery: |
      sum by (<<.GroupBy>>) (node_memory_working_set_bytes{<<.LabelMatchers>>})
    resources:
      overrides:
        node: {resource: node}
        namespace: {resource: namespace}
        pod: {resource: pod}
  window: 5m
"""


class Installation(Struct, frozen=True):
    """How somebody starts prometheus-adapter."""

    name: str
    arguments: Sequence[str]
    rules: str = ""  # "": the rules of config-gen, which the chart has by default
    has_certificate: bool = False
    serves_resources: bool = False


INSTALLATIONS = (
    Installation(
        "helm-chart-defaults",
        (
            "/adapter",
            "--secure-port=6443",
            "--cert-dir=/tmp/cert",
            "--prometheus-url=http://prometheus.default.svc:9090",
            "--metrics-relist-interval=1m",
            "--v=4",
            "--config=/etc/adapter/config.yaml",
        ),
    ),
    Installation(
        "helm-chart-with-tls-and-extra-arguments",
        (
            "/adapter",
            "--secure-port=6443",
            "--tls-cert-file=/var/run/serving-cert/tls.crt",
            "--tls-private-key-file=/var/run/serving-cert/tls.key",
            "--cert-dir=/tmp/cert",
            "--prometheus-url=http://prometheus.default.svc:9090/prefix",
            "--metrics-relist-interval=30s",
            "--v=6",
            "--config=/etc/adapter/config.yaml",
            "--metrics-max-age=5m",
            "--prometheus-header=X-Scope-OrgID=tenant",
            "--client-qps=50",
            "--client-burst=100",
        ),
        has_certificate=True,
    ),
    Installation(
        "kube-prometheus",
        (
            "--cert-dir=/var/run/serving-cert",
            "--config=/etc/adapter/config.yaml",
            "--metrics-relist-interval=1m",
            "--prometheus-url=http://prometheus-k8s.monitoring.svc:9090/",
            "--secure-port=6443",
            f"--tls-cipher-suites={_SUITES}",
        ),
        RESOURCE_RULES,
        serves_resources=True,
    ),
    Installation(
        "deploy-manifests",
        (
            "--cert-dir=/var/run/serving-cert",
            "--config=/etc/adapter/config.yaml",
            "--metrics-relist-interval=1m",
            "--prometheus-url=https://prometheus.monitoring.svc:9090/",
            "--secure-port=6443",
            f"--tls-cipher-suites={_SUITES}",
        ),
        RESOURCE_RULES,
        serves_resources=True,
    ),
    Installation(
        "old-manifests",
        (
            "/adapter",
            "--secure-port=6443",
            "--tls-cert-file=/var/run/serving-cert/tls.crt",
            "--tls-private-key-file=/var/run/serving-cert/tls.key",
            "--logtostderr=true",
            "--prometheus-url=http://prometheus.prom.svc:9090/",
            "--metrics-relist-interval=30s",
            "--v=10",
            "--config=/etc/adapter/config.yaml",
        ),
        has_certificate=True,
    ),
)
