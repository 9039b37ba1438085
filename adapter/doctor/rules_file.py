"""A rules file as it is taken, and what is wrong with the queries of one that does not load.

Rules that load are taken even if they answer nothing, as by prometheus-adapter. The queries of a
refused file are filled in and read as those of others are, so that one round of editing is enough.
"""

from collections.abc import Sequence, Set

import structlog
from msgspec.structs import replace

from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.findings import LintFinding
from adapter.doctor.lints import BROKEN, lint
from adapter.errors import Problem
from adapter.rules import config
from adapter.rules.ruleset import SECTIONS, RuleSet, compile_rules, read_rules

log = structlog.get_logger(__name__)

# What stands in for a part that is refused already.
_LABELS = config.ResourceMapping(template="<<.Resource>>")
_QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_USAGE = "sum(usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_SERIES = "some_series"


def sound_rules(
    text: str, file: str, mapper: ResourceMapper, sources: frozenset[str] | None = None
) -> RuleSet:
    """Return the rules of a file; raises ``ConfigInvalid``.

    ``sources`` are those that there are; None: any will do.
    """
    parsed, rules = read_rules(text, file, mapper, sources)
    for found in lint(parsed, rules):
        if found.lint in BROKEN:
            log.warning("rules may answer nothing", rule=found.subject, problem=found.text)
    return rules


def query_findings(
    text: str, file: str, problems: Sequence[Problem], mapper: ResourceMapper
) -> list[LintFinding]:
    """Return the findings beside the ``problems`` for which the file is refused."""
    parsed, _ = config.read(text, file)
    refused = {problem.path for problem in problems}
    written = parsed.config
    custom, external = (
        tuple(_rule(f"{section}[{i}]", each, refused) for i, each in enumerate(rules))
        for section, rules in zip(SECTIONS, (written.rules, written.external_rules), strict=True)
    )
    if (usage := written.resource_rules) is not None:
        cpu = _resource_rule("resourceRules.cpu", usage.cpu, refused)
        memory = _resource_rule("resourceRules.memory", usage.memory, refused)
        usage = replace(usage, cpu=cpu, memory=memory)
    sound = replace(parsed, config=config.Config(custom, external, usage))
    # Where nothing could be read, what is refused may have been the rules.
    found = lint(sound, compile_rules(sound, mapper))
    return [each for each in found if each.lint in BROKEN - {"NoRules"}]


def _rule(path: str, rule: config.RuleConfig, refused: Set[str]) -> config.RuleConfig:
    return replace(
        rule,
        series_query=_text(path, "seriesQuery", rule.series_query, _SERIES, refused),
        series_filters=(),
        resources=_resources(path, rule.resources, refused),
        name=config.NameMapping(),
        metrics_query=_text(path, "metricsQuery", rule.metrics_query, _QUERY, refused),
    )


def _resource_rule(
    path: str, rule: config.ResourceRuleConfig, refused: Set[str]
) -> config.ResourceRuleConfig:
    if rule == config.ResourceRuleConfig() and not refused & {"resourceRules", path}:
        return rule  # it is missing, and is said to be
    return replace(
        rule,
        container_query=_text(path, "containerQuery", rule.container_query, _USAGE, refused),
        node_query=_text(path, "nodeQuery", rule.node_query, _USAGE, refused),
        resources=_resources(path, rule.resources, refused),
    )


def _text(path: str, key: str, text: str, sound: str, refused: Set[str]) -> str:
    # An absent one may be what is written under an unknown key, which is refused at ``path``.
    return sound if f"{path}.{key}" in refused or (not text and path in refused) else text


def _resources(
    path: str, labels: config.ResourceMapping, refused: Set[str]
) -> config.ResourceMapping:
    at = f"{path}.resources"
    is_refused = any(each in (path, at) or each.startswith(f"{at}.") for each in refused)
    return replace(_LABELS, namespaced=labels.namespaced) if is_refused else labels
