"""What the demo starts its parts with: the flags of ``podscale run``, on this machine alone, and
the rules file.

Periods are of real time, windows of the demo's; deadlines of the network stay as they are.
"""

from collections.abc import Mapping
from pathlib import Path

from podscale.cli.demo.clock import Clock
from podscale.cli.parts import KINDS, with_feed
from podscale.nodes import part as nodes_part
from podscale.nodes.decide.ballast import BallastSettings
from podscale.process.part import Flagged, Kinds
from podscale.serving import flags as serving_flags

# The nodes part averages over a window of the demo's own.
_BALLAST = BallastSettings(window_s=15.0, write_interval_s=10.0)
DEMO_KINDS: Kinds = {**KINDS, "nodes": with_feed(nodes_part.kind(_BALLAST))}
NAMESPACE, SERVICE = "podscale", "podscale"
_HOST = "127.0.0.1"


def flags(clock: Clock, scrape_s: float, directory: Path, prometheus_url: str) -> Flagged:
    """Return every part's flags. ``directory`` holds kubeconfig and rules, takes certificates."""
    words = _words(clock, scrape_s, directory, prometheus_url)
    return {part: serving_flags.parse(own, KINDS[part].table) for part, own in words.items()}


def _words(
    clock: Clock, scrape_s: float, directory: Path, prometheus_url: str
) -> Mapping[str, list[str]]:
    kubeconfig = directory / "kubeconfig"
    behind, alone = f"--service={NAMESPACE}/{SERVICE}", "--leader-elect=false"
    cluster = f"--kubeconfig={kubeconfig}"
    return {
        "adapter": [
            f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus_url}",
            f"--cert-dir={directory}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={_HOST}",
            behind,
            f"--metrics-relist-interval={max(clock.real_s(5.0), 0.5):.3f}s",
            "--metrics-max-age=2m",
            f"--feed-max-age={scrape_s:g}s",
        ],
        "hpa": [
            cluster,
            behind,
            alone,
            f"--leader-elect-resource-namespace={NAMESPACE}",
            f"--horizontal-pod-autoscaler-sync-period={clock.flag(5.0)}",
        ],
        "recommender": [
            cluster,
            behind,
            alone,
            "--metrics-source=feed",
            "--address=",
            f"--recommender-interval={clock.flag(10.0)}",
        ],
        "updater": [
            cluster,
            alone,
            "--address=",
            f"--updater-interval={clock.flag(10.0)}",
            # Admission lives in this process: its sign of life, of the machine's time, says
            # nothing.
            "--use-admission-controller-status=false",
        ],
        "nodes": [
            cluster,
            "--mode=ballast",
            f"--leader-elect-resource-namespace={NAMESPACE}",
            f"--nodes-interval={clock.flag(5.0)}",
        ],
        "admission": [
            cluster,
            f"--cert-dir={directory}",
            f"--tls-cert-file={directory / 'none'}",
            "--register-by-url=true",
            f"--webhook-address={_HOST}",
            "--port=0",
            "--address=",
            f"--bind-address={_HOST}",
        ],
    }


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
