"""The rules file of the demo, in prometheus-adapter's format, and what Prometheus scrapes."""

import yaml

_RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[WINDOW])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_messages{namespace!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: >-
      sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[WINDOW])) by (<<.GroupBy>>)
    nodeQuery: >-
      sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[WINDOW])) by (<<.GroupBy>>)
    resources:
      overrides:
        namespace: {resource: namespace}
        pod: {resource: pod}
        node: {resource: node}
    containerLabel: container
  memory:
    containerQuery: sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources:
      overrides:
        namespace: {resource: namespace}
        pod: {resource: pod}
        node: {resource: node}
    containerLabel: container
  window: WINDOW
"""


def rules(scrape_s: float) -> str:
    """Return the rules for a scrape every ``scrape_s`` of the demo's seconds."""
    return _RULES.replace("WINDOW", f"{round(10 * scrape_s)}s")


def scrape_config(metrics_url: str) -> str:
    """Return Prometheus's configuration."""
    target = metrics_url.removeprefix("http://").removesuffix("/metrics")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "sandbox",
                "honor_labels": True,
                "static_configs": [{"targets": [target]}],
            }
        ],
    }
    return yaml.safe_dump(config)
