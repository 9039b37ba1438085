"""The rules that prometheus-adapter's ``config-gen`` prints, as data and as YAML.

Six rules over cAdvisor's and everybody's series, and CPU and memory from cAdvisor
(cases A0; the Helm chart's ``rules.default`` and kube-prometheus use the same six).
"""

from functools import partial
from typing import Any

import msgspec
import yaml

from adapter.rules.config import (
    Config,
    GroupResource,
    NameMapping,
    ResourceMapping,
    ResourceRuleConfig,
    ResourceRulesConfig,
    RuleConfig,
    SeriesFilter,
)
from podscale.core.json_decoder import decode_json
from podscale.core.times import duration

_LEFT_OUT = ("metricsQuery", "source")  # where they are empty
_RATE = "sum(rate(<<.Series>>{<<.LabelMatchers>>%s}[%s])) by (<<.GroupBy>>)"
_SUM = "sum(<<.Series>>{<<.LabelMatchers>>%s}) by (<<.GroupBy>>)"
_NOT_THE_SANDBOX = ',container!="POD"'
_CADVISOR = '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'


def default_config(rate: str = "5m", label_prefix: str = "") -> Config:
    """Return the default rules; ``rate`` is a Prometheus duration, used in every range.

    ``label_prefix`` goes before the labels of rules 4 to 6 and the container label, and
    nowhere else, as upstream.
    """
    containers = ResourceMapping(
        overrides={"namespace": GroupResource("namespace"), "pod": GroupResource("pod")}
    )
    others = ResourceMapping(template=f"{label_prefix}<<.Resource>>")
    other_series = f'{{{label_prefix}namespace!="",__name__!~"^container_.*"}}'
    container_rate = _RATE % (_NOT_THE_SANDBOX, rate)

    cadvisor = partial(_rule, _CADVISOR, containers)
    other = partial(_rule, other_series, others)
    return Config(
        rules=(
            cadvisor("^container_(.*)_seconds_total$", container_rate),
            cadvisor("^container_(.*)_total$", container_rate, "^container_.*_seconds_total$"),
            cadvisor("^container_(.*)$", _SUM % _NOT_THE_SANDBOX, "^container_.*_total$"),
            other("", _SUM % "", ".*_total$"),
            other("^(.*)_total$", _RATE % ("", rate), ".*_seconds_total"),
            other("^(.*)_seconds_total$", _RATE % ("", rate)),
        ),
        resource_rules=_resource_rules(rate, label_prefix),
    )


def _rule(
    series: str, resources: ResourceMapping, matches: str, query: str, *is_not: str
) -> RuleConfig:
    dropped = tuple(SeriesFilter(is_not=pattern) for pattern in is_not)
    return RuleConfig(series, dropped, resources, NameMapping(matches), query)


def _resource_rules(rate: str, label_prefix: str) -> ResourceRulesConfig:
    resources = ResourceMapping(
        overrides={
            "namespace": GroupResource("namespace"),
            "pod": GroupResource("pod"),
            "instance": GroupResource("node"),
        }
    )
    cpu = "sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>%s}[%s])) by (<<.GroupBy>>)"
    memory = "sum(container_memory_working_set_bytes{<<.LabelMatchers>>%s}) by (<<.GroupBy>>)"
    container_label = f"{label_prefix}container"
    return ResourceRulesConfig(
        cpu=ResourceRuleConfig(
            cpu % ("", rate), cpu % (", id='/'", rate), resources, container_label
        ),
        memory=ResourceRuleConfig(memory % "", memory % ",id='/'", resources, container_label),
        window_s=duration.parse_prometheus(rate),
    )


def dump(config: Config, window: str | None = None) -> dict[str, Any]:
    """Return ``config`` in the shape of the file; empty optional fields are left out.

    ``window`` is the text for the window; without it seconds are written.
    """
    out: dict[str, Any] = {"rules": [dump_rule(rule) for rule in config.rules]}
    if config.external_rules:
        out["externalRules"] = [dump_rule(rule) for rule in config.external_rules]
    rules = config.resource_rules
    if rules is not None:
        out["resourceRules"] = {
            "cpu": dump_rule(rules.cpu),
            "memory": dump_rule(rules.memory),
            "window": window or f"{round(rules.window_s * 1000)}ms",
        }
    return out


def dump_rule(rule: RuleConfig | ResourceRuleConfig) -> dict[str, Any]:
    """Return ``rule`` in the shape of the file."""
    written = decode_json(msgspec.json.encode(rule), dict[str, Any])
    return {key: value for key, value in written.items() if value or key not in _LEFT_OUT}


def default_yaml(rate: str = "5m", label_prefix: str = "") -> str:
    """Return the default rules as YAML, ready for ``--config``."""
    rules = dump(default_config(rate, label_prefix), rate)
    return yaml.safe_dump(rules, sort_keys=False, width=1000)
